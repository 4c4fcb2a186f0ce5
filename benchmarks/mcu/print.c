/* printf, as much of it as a package's test asks for: %s, %c, %% and integers of all widths, in decimals. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include "board.h"

static void write_char(char value) {
    const char text[2] = {value, '\0'};
    board_write(text);
}

static void write_integer(uint64_t magnitude, int negative) {
    char text[22];
    int at = 21;
    text[at] = '\0';
    do {
        text[--at] = (char)('0' + magnitude % 10);
        magnitude /= 10;
    } while (magnitude != 0);
    if (negative) {
        text[--at] = '-';
    }
    board_write(&text[at]);
}

/* A conversion's argument, by its letter and the number of l in front of it (z is one). */
static void write_argument(char letter, int longs, va_list *arguments) {
    if (letter == 'd' || letter == 'i') {
        const int64_t value = longs == 0   ? va_arg(*arguments, int)
                              : longs == 1 ? va_arg(*arguments, long)
                                           : va_arg(*arguments, long long);
        write_integer(value < 0 ? 0 - (uint64_t)value : (uint64_t)value, value < 0);
    } else if (letter == 'u') {
        write_integer(longs == 0   ? va_arg(*arguments, unsigned)
                      : longs == 1 ? va_arg(*arguments, unsigned long)
                                   : va_arg(*arguments, unsigned long long),
                      0);
    } else if (letter == 's') {
        board_write(va_arg(*arguments, const char *));
    } else if (letter == 'c') {
        write_char((char)va_arg(*arguments, int));
    } else if (letter == '%') {
        write_char('%');
    } else {
        board_write("printf of this board lacks a conversion\n");
        board_exit(3);
    }
}

int printf(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    for (; *format != '\0'; ++format) {
        if (*format != '%') {
            write_char(*format);
            continue;
        }
        int longs = 0;
        for (++format; *format == 'l' || *format == 'z'; ++format) {
            ++longs;
        }
        write_argument(*format, longs, &arguments);
    }
    va_end(arguments);
    return 0;
}

int puts(const char *text) {
    board_write(text);
    board_write("\n");
    return 0;
}

int putchar(int value) {
    write_char((char)value);
    return value;
}
