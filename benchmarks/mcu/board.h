/* What a program has on a machine without an operating system: text to QEMU, and an end. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

/* The least and the first address behind the stack. */
extern uint32_t stack_bottom[], stack_top[];

void board_write(const char *text);
void board_exit(int code);

#endif
