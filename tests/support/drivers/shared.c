/* Calls of the plain entry ENTRY from CALLERS threads at once, RUNS times each, on inputs of
   INPUT_BYTES (a list) that all share and outputs of OUTPUT_BYTES: every call has to write what the
   first call wrote. For the thread sanitizer. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOIN(a, b) a##b
#define JOINED(a, b) JOIN(a, b)
#define ARENA_BYTES JOINED(ENTRY, _arena_bytes)
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

extern const int64_t ARENA_BYTES;
int32_t ENTRY(const void *const *inputs, void *const *outputs, void *arena);

static const size_t in_bytes[] = {INPUT_BYTES};
static const size_t out_bytes[] = {OUTPUT_BYTES};
static void *inputs[COUNT(in_bytes)];
static void *expected[COUNT(out_bytes)];

static void *block(size_t bytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, 64, bytes + 64) != 0) {
        exit(2);
    }
    memset(memory, 0, bytes);
    return memory;
}

static void call(void **outputs) {
    void *const arena = block((size_t)ARENA_BYTES);
    ENTRY((const void *const *)inputs, outputs, arena);
    free(arena);
}

static void *work(void *argument) {
    (void)argument;
    void *outputs[COUNT(out_bytes)];
    intptr_t wrong = 0;
    for (size_t i = 0; i < COUNT(out_bytes); ++i) {
        outputs[i] = block(out_bytes[i]);
    }
    for (int run = 0; run < RUNS; ++run) {
        call(outputs);
        for (size_t i = 0; i < COUNT(out_bytes); ++i) {
            wrong += memcmp(outputs[i], expected[i], out_bytes[i]) != 0;
        }
    }
    for (size_t i = 0; i < COUNT(out_bytes); ++i) {
        free(outputs[i]);
    }
    return (void *)wrong;
}

int main(void) {
    pthread_t callers[CALLERS];
    intptr_t total = 0;
    for (size_t i = 0; i < COUNT(in_bytes); ++i) {
        inputs[i] = block(in_bytes[i]);
        for (size_t at = 0; at < in_bytes[i]; ++at) {
            ((unsigned char *)inputs[i])[at] = (unsigned char)(at * 37 % 61);
        }
    }
    for (size_t i = 0; i < COUNT(out_bytes); ++i) {
        expected[i] = block(out_bytes[i]);
    }
    call(expected);
    for (int i = 0; i < CALLERS; ++i) {
        if (pthread_create(&callers[i], NULL, work, NULL) != 0) {
            return 3;
        }
    }
    for (int i = 0; i < CALLERS; ++i) {
        void *wrong = NULL;
        pthread_join(callers[i], &wrong);
        total += (intptr_t)wrong;
    }
    printf("%d wrong\n", (int)total);
    return total != 0;
}
