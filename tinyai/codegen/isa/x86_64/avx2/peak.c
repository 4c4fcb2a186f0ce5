/* vpmaddubsw in groups of four words, the largest of groups.py: their products are added in 16 bits,
   and widened once. Three groups a turn; nothing is loaded. */
#include "../peak.h"

#define CLEAR(n) "vpxor %%ymm" #n ", %%ymm" #n ", %%ymm" #n "\n\t"
#define WORD(n) "vpmaddubsw %%ymm14, %%ymm15, %%ymm" #n "\n\t"
#define GROUP(sum) \
  WORD(0) WORD(1) WORD(2) WORD(3) "vpaddw %%ymm0, %%ymm1, %%ymm4\n\t" \
  "vpaddw %%ymm2, %%ymm3, %%ymm5\n\tvpaddw %%ymm4, %%ymm5, %%ymm4\n\t" \
  "vpmaddwd %%ymm13, %%ymm4, %%ymm4\n\tvpaddd %%ymm4, %%ymm" #sum ", %%ymm" #sum "\n\t"
#define USED \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm13", "xmm14", "xmm15"

static const double MACS = 3 * 4 * 32;

static int allowed(void) { return 1; }

static void multiply(long turns) {
  __asm__ volatile(
    CLEAR(6) CLEAR(7) CLEAR(8) CLEAR(13) CLEAR(14) CLEAR(15)
    "2:\n\t" GROUP(6) GROUP(7) GROUP(8) "dec %0\n\tjnz 2b\n\t"
    : "+r"(turns) : : "cc", USED);
}
