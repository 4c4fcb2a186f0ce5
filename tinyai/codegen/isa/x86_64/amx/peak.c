/* How many multiply-accumulates of tdpbusd the cores make in a second, for peak.py: four tiles of sums
   hide the instruction's latency, and nothing is loaded.
   One thread a core, all at the same time; each by its own processor time, so that other programs
   on the machine do not lower the peak. */
#define _POSIX_C_SOURCE 200112L
#include <pthread.h>
#include <time.h>

enum { TURNS = 5000, SUMS = 4, MACS = 16 * 16 * 64 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double least;

static void *work(void *rate) {
  /* All tiles have 16 rows of 64 bytes. */
  struct {
    unsigned char palette, row, none[14];
    unsigned short bytes[16];
    unsigned char rows[16];
  } shape = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
  double macs = 0, start = now();
  __asm__ volatile(
    "ldtilecfg %0\n\ttilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3\n\t"
    "tilezero %%tmm4\n\ttilezero %%tmm6"
    : : "m"(shape) : "memory");
  while (now() - start < least) {
    long turns = TURNS;
    __asm__ volatile(
      "2:\n\ttdpbusd %%tmm6, %%tmm4, %%tmm0\n\ttdpbusd %%tmm6, %%tmm4, %%tmm1\n\t"
      "tdpbusd %%tmm6, %%tmm4, %%tmm2\n\ttdpbusd %%tmm6, %%tmm4, %%tmm3\n\tdec %0\n\tjnz 2b"
      : "+r"(turns) : : "cc", "memory");
    macs += (double)TURNS * SUMS * MACS;
  }
  __asm__ volatile("tilerelease" : : : "memory");
  *(double *)rate = macs / (now() - start);
  return 0;
}

double macs_a_second(int threads, double seconds);
double macs_a_second(int threads, double seconds) {
  pthread_t others[64];
  double rates[64], sum = 0;
  long refused = 158; /* arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) */
  __asm__ volatile("syscall" : "+a"(refused) : "D"(0x1023L), "S"(18L) : "rcx", "r11", "memory");
  if (refused || threads > 64) return -1;
  least = seconds;
  for (int i = 1; i < threads; i++)
    if (pthread_create(&others[i], 0, work, &rates[i])) return -1;
  work(&rates[0]);
  for (int i = 1; i < threads; i++) pthread_join(others[i], 0);
  for (int i = 0; i < threads; i++) sum += rates[i];
  return sum;
}
