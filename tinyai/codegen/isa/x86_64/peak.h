/* How many multiply-accumulates of an instruction set the cores make in a second, for peak.py. One
   thread a core, all at the same time; each by its own processor time, so that other programs on the
   machine do not lower the peak. A peak.c says what is computed. */
#define _POSIX_C_SOURCE 200112L
#include <pthread.h>
#include <time.h>

/* Whether this process may use the set. */
static int allowed(void);
/* So many turns of a loop of products, and the multiply-accumulates of one. */
static void multiply(long turns);
static const double MACS;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double least;

static void *work(void *rate) {
  const long turns = 20000; /* long beside the question for the time */
  double macs = 0, start = now();
  while (now() - start < least) {
    multiply(turns);
    macs += (double)turns * MACS;
  }
  *(double *)rate = macs / (now() - start);
  return 0;
}

double macs_a_second(int threads, double seconds);
double macs_a_second(int threads, double seconds) {
  pthread_t others[64];
  double rates[64], sum = 0;
  if (!allowed() || threads > 64) return -1;
  least = seconds;
  for (int i = 1; i < threads; i++)
    if (pthread_create(&others[i], 0, work, &rates[i])) return -1;
  work(&rates[0]);
  for (int i = 1; i < threads; i++) pthread_join(others[i], 0);
  for (int i = 0; i < threads; i++) sum += rates[i];
  return sum;
}
