/* tdpbusd: four tiles of sums hide the instruction's latency, and nothing is loaded. */
#include "../peak.h"

static const double MACS = 4 * 16 * 16 * 64;

static int allowed(void) {
  long refused = 158; /* arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) */
  __asm__ volatile("syscall" : "+a"(refused) : "D"(0x1023L), "S"(18L) : "rcx", "r11", "memory");
  return !refused;
}

static void multiply(long turns) {
  /* All tiles have 16 rows of 64 bytes. */
  struct {
    unsigned char palette, row, none[14];
    unsigned short bytes[16];
    unsigned char rows[16];
  } shape = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
  __asm__ volatile(
    "ldtilecfg %1\n\ttilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3\n\t"
    "tilezero %%tmm4\n\ttilezero %%tmm6\n\t"
    "2:\n\ttdpbusd %%tmm6, %%tmm4, %%tmm0\n\ttdpbusd %%tmm6, %%tmm4, %%tmm1\n\t"
    "tdpbusd %%tmm6, %%tmm4, %%tmm2\n\ttdpbusd %%tmm6, %%tmm4, %%tmm3\n\tdec %0\n\tjnz 2b\n\t"
    "tilerelease"
    : "+r"(turns) : "m"(shape) : "cc", "memory");
}
