/* vpdpbusd of 256 bits: fourteen accumulators hide the instruction's latency, so that nothing but
   its throughput is left. */
#include "../peak.h"

#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)
#define DOT(n) "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm" #n "\n\t"
#define CLEAR(n) "vpxor %%ymm" #n ", %%ymm" #n ", %%ymm" #n "\n\t"
#define USED \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
  "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

static const double MACS = 14 * 32;

static int allowed(void) { return 1; }

static void multiply(long turns) {
  __asm__ volatile(
    EACH(CLEAR) CLEAR(14) CLEAR(15) "2:\n\t" EACH(DOT) "dec %0\n\tjnz 2b\n\t"
    : "+r"(turns) : : "cc", USED);
}
