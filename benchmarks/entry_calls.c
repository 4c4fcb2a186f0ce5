/* Calls of an emitted entry in a loop, for benchmarks/timing.py. */
#define _POSIX_C_SOURCE 200112L
#include <time.h>

typedef int (*entry_t)(const void *const *, void *const *, void *);

double mean_seconds(entry_t entry, const void *const *in, void *const *out, void *arena, long n);
double mean_seconds(entry_t entry, const void *const *in, void *const *out, void *arena, long n) {
  struct timespec a, b;
  clock_gettime(CLOCK_MONOTONIC, &a);
  for (long i = 0; i < n; i++) entry(in, out, arena);
  clock_gettime(CLOCK_MONOTONIC, &b);
  return ((double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec)) / (double)n;
}
