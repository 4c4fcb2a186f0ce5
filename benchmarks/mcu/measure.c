/* Stands between a package's test and the function RUN of the package (ld --wrap): calls it RUNS times,
 * so that a program with two calls runs what one call runs more than a program with one, and writes how
 * much stack a call needs. */
#include "board.h"

#define JOIN(a, b) a##b
#define NAME(prefix, name) JOIN(prefix, name)
#if defined(__riscv)
#define MOVE_SP "mv"
#else
#define MOVE_SP "mov"
#endif
#define PAINT 0x5ca1ab1eu

int NAME(__real_, RUN)(void *network, const void *input, void *output);
int NAME(__wrap_, RUN)(void *network, const void *input, void *output);

static void write_number(uint32_t value) {
    char digits[11];
    int at = 10;
    digits[at] = '\0';
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    board_write(&digits[at]);
}

int NAME(__wrap_, RUN)(void *network, const void *input, void *output) {
    uint32_t *top;
    __asm__ volatile(MOVE_SP " %0, sp" : "=r"(top));
    for (volatile uint32_t *word = stack_bottom; word < top; ++word) {
        *word = PAINT;
    }
    int code = 0;
    for (int run = 0; run < RUNS && code == 0; ++run) {
        code = NAME(__real_, RUN)(network, input, output);
    }
    const volatile uint32_t *word = stack_bottom;
    while (word < top && *word == PAINT) {
        ++word;
    }
    board_write("stack ");
    write_number((uint32_t)((uintptr_t)top - (uintptr_t)word));
    board_write("\n");
    return code;
}
