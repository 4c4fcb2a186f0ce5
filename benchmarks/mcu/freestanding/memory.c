/* The four functions of memory that a compiler expects, by words where both sides are aligned. To be
 * compiled so that these loops do not become calls of themselves. */
#include <stdint.h>
#include <string.h>

typedef uint32_t __attribute__((may_alias)) word;

void *memcpy(void *restrict to, const void *restrict from, size_t bytes) {
    char *out = to;
    const char *in = from;
    if ((((uintptr_t)out | (uintptr_t)in) & 3) == 0) {
        for (; bytes >= 4; bytes -= 4, out += 4, in += 4) {
            *(word *)(void *)out = *(const word *)(const void *)in;
        }
    }
    for (; bytes != 0; --bytes) {
        *out++ = *in++;
    }
    return to;
}

void *memmove(void *to, const void *from, size_t bytes) {
    char *out = to;
    const char *in = from;
    if ((uintptr_t)out - (uintptr_t)in >= bytes) {
        return memcpy(to, from, bytes);
    }
    while (bytes-- != 0) {
        out[bytes] = in[bytes];
    }
    return to;
}

void *memset(void *to, int value, size_t bytes) {
    char *out = to;
    const uint32_t four = 0x01010101u * (unsigned char)value;
    for (; bytes != 0 && ((uintptr_t)out & 3) != 0; --bytes) {
        *out++ = (char)value;
    }
    for (; bytes >= 4; bytes -= 4, out += 4) {
        *(word *)(void *)out = four;
    }
    for (; bytes != 0; --bytes) {
        *out++ = (char)value;
    }
    return to;
}

int memcmp(const void *left, const void *right, size_t bytes) {
    const unsigned char *a = left, *b = right;
    for (size_t i = 0; i < bytes; ++i) {
        if (a[i] != b[i]) {
            return a[i] < b[i] ? -1 : 1;
        }
    }
    return 0;
}
