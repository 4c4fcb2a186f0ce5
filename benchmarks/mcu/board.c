/* Start, end and output on Cortex-M and RISC-V, by semihosting: QEMU answers an instruction that asks. */
#include "board.h"

enum { WRITE0 = 0x04, EXIT_EXTENDED = 0x20, STOPPED_BY_APPLICATION = 0x20026 };

int main(void);
void start(void);
static void fault(void);

#if defined(__arm__)

static void ask(uintptr_t operation, uintptr_t argument) {
    register uintptr_t r0 __asm__("r0") = operation;
    register uintptr_t r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}

/* The system's exceptions; interrupts stay off. */
typedef void (*handler)(void);
__attribute__((section(".vectors"), used)) static const handler vectors[16] = {
    (handler)stack_top, start, fault, fault, fault, fault, fault, fault,
    fault,              fault, fault, fault, fault, fault, fault, fault,
};

void start(void) {
    /* Coprocessors 10 and 11: floating point, and the vectors of Cortex-M55. */
    *(volatile uint32_t *)0xe000ed88 |= 0xfu << 20;
    __asm__ volatile("dsb\n\tisb" ::: "memory");
    board_exit(main());
}

#elif defined(__riscv)

static void ask(uintptr_t operation, uintptr_t argument) {
    register uintptr_t a0 __asm__("a0") = operation;
    register uintptr_t a1 __asm__("a1") = argument;
    /* Three instructions of four bytes, on one page, are the question. */
    __asm__ volatile(".option push\n\t.option norvc\n\t.balign 16\n\t"
                     "slli zero, zero, 0x1f\n\tebreak\n\tsrai zero, zero, 7\n\t.option pop"
                     : "+r"(a0)
                     : "r"(a1)
                     : "memory");
}

__attribute__((used)) static void begin(void) {
    __asm__ volatile(".option push\n\t.option arch, +zicsr\n\tcsrw mtvec, %0\n\t.option pop"
                     ::"r"((uintptr_t)fault));
    board_exit(main());
}

__attribute__((section(".vectors"), naked)) void start(void) {
    __asm__ volatile("la sp, stack_top\n\ttail begin");
}

#else
#error "Cortex-M or RISC-V"
#endif

__attribute__((aligned(4))) static void fault(void) {
    board_write("fault\n");
    board_exit(2);
}

void board_write(const char *text) {
    ask(WRITE0, (uintptr_t)text);
}

void board_exit(int code) {
    const uintptr_t arguments[2] = {STOPPED_BY_APPLICATION, (uintptr_t)code};
    for (;;) {
        ask(EXIT_EXTENDED, (uintptr_t)arguments);
    }
}
