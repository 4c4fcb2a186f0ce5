/* For compilers without a C library: what print.c has. */
#ifndef FREESTANDING_STDIO_H
#define FREESTANDING_STDIO_H

#include <stddef.h>

int printf(const char *format, ...) __attribute__((format(printf, 1, 2)));
int puts(const char *text);
int putchar(int value);

#endif
