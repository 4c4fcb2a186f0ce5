/* How many multiply-accumulates of vpdpbusd the cores make in a second, for peak.py.
   Fourteen accumulators hide the instruction's latency, so that nothing but its throughput is left.
   One thread a core, all at the same time; each by its own processor time, so that other programs
   on the machine do not lower the peak. */
#define _POSIX_C_SOURCE 200112L
#include <pthread.h>
#include <time.h>

enum { TURNS = 20000, ACCUMULATORS = 14, MACS = 64 };
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)
#define DOT(n) "vpdpbusd %%zmm14, %%zmm15, %%zmm" #n "\n\t"
#define CLEAR(n) "vpxord %%zmm" #n ", %%zmm" #n ", %%zmm" #n "\n\t"
#define USED \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
  "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double least;

static void *work(void *rate) {
  double macs = 0, start = now();
  while (now() - start < least) {
    long turns = TURNS;
    __asm__ volatile(
      EACH(CLEAR) CLEAR(14) CLEAR(15) "2:\n\t" EACH(DOT) "dec %0\n\tjnz 2b\n\t"
      : "+r"(turns) : : "cc", USED);
    macs += (double)TURNS * ACCUMULATORS * MACS;
  }
  *(double *)rate = macs / (now() - start);
  return 0;
}

double macs_a_second(int threads, double seconds);
double macs_a_second(int threads, double seconds) {
  pthread_t others[64];
  double rates[64], sum = 0;
  if (threads > 64) return -1;
  least = seconds;
  for (int i = 1; i < threads; i++)
    if (pthread_create(&others[i], 0, work, &rates[i])) return -1;
  work(&rates[0]);
  for (int i = 1; i < threads; i++) pthread_join(others[i], 0);
  for (int i = 0; i < threads; i++) sum += rates[i];
  return sum;
}
