/* Runs an emitted region twice on inputs from a file. argv: file of inputs, file for outputs.
 *
 * Every tensor is a heap block of its exact size, so that the address sanitizer sees an access
 * beyond it. Arena and outputs begin with other garbage in each run: what depends on it shows.
 * File: int64 inputs, outputs; for each tensor int64 code, bits, ndim, dimensions; inputs' data.
 * ENTRY is the region's symbol. With PACKED it has TVM's packed entry, else the plain one. */
#define _POSIX_C_SOURCE 200112L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DIMS 8
#define JOIN(a, b) a##b
#define JOINED(a, b) JOIN(a, b)
#define ARENA_BYTES JOINED(ENTRY, _arena_bytes)

typedef struct {
    int64_t code, bits, ndim, shape[MOST_DIMS];
    size_t bytes;
    char *data;
} buffer;

static void fail(const char *what) {
    fprintf(stderr, "driver: %s\n", what);
    exit(1);
}

static void *block(size_t bytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, 64, bytes) != 0) {
        fail("out of memory");
    }
    return memory;
}

static void take(FILE *from, void *into, size_t bytes) {
    if (fread(into, 1, bytes, from) != bytes) {
        fail("the file of inputs is too short");
    }
}

static unsigned char garbage;

#ifdef PACKED
typedef struct {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} tensor;

typedef union {
    int64_t v_int64;
    double v_float64;
    void *v_handle;
} value;

static int workspaces;

void TVMAPISetLastError(const char *message) {
    fprintf(stderr, "%s\n", message);
}

void *TVMBackendAllocWorkspace(int device_type, int device_id, uint64_t bytes, int code, int bits) {
    (void)device_type, (void)device_id, (void)code, (void)bits;
    void *memory = block(bytes);
    memset(memory, garbage, bytes);
    ++workspaces;
    return memory;
}

int TVMBackendFreeWorkspace(int device_type, int device_id, void *workspace) {
    (void)device_type, (void)device_id;
    free(workspace);
    --workspaces;
    return 0;
}

int32_t ENTRY(value *, int32_t *, int32_t, value *, int32_t *, void *);

static void call(buffer *buffers, int64_t inputs, int64_t outputs) {
    const int64_t count = inputs + outputs;
    tensor *tensors = (tensor *)block((size_t)count * sizeof(tensor));
    value *args = (value *)block((size_t)count * sizeof(value));
    int32_t *codes = (int32_t *)block((size_t)count * sizeof(int32_t));
    for (int64_t i = 0; i < count; ++i) {
        buffer *b = &buffers[i];
        tensors[i] = (tensor){b->data, 1, 0, (int32_t)b->ndim, (uint8_t)b->code, (uint8_t)b->bits,
                              1, b->shape, NULL, 0};
        args[i].v_handle = &tensors[i];
        codes[i] = 7;
    }
    value ret = {0};
    int32_t ret_code = 0;
    if (ENTRY(args, codes, (int32_t)count, &ret, &ret_code, NULL) != 0) {
        fail("the entry refused the call");
    }
    if (workspaces != 0) {
        fail("a workspace was not freed");
    }
    free(tensors);
    free(args);
    free(codes);
}
#else
extern const int64_t ARENA_BYTES;
int32_t ENTRY(const void *const *, void *const *, void *);

static void call(buffer *buffers, int64_t inputs, int64_t outputs) {
    const void **in = (const void **)block((size_t)(inputs + 1) * sizeof(void *));
    void **out = (void **)block((size_t)outputs * sizeof(void *));
    void *arena = block((size_t)ARENA_BYTES);
    for (int64_t i = 0; i < inputs; ++i) {
        in[i] = buffers[i].data;
    }
    for (int64_t i = 0; i < outputs; ++i) {
        out[i] = buffers[inputs + i].data;
    }
    memset(arena, garbage, (size_t)ARENA_BYTES);
    if (ENTRY(in, out, arena) != 0) {
        fail("the entry refused the call");
    }
    free(arena);
    free(in);
    free(out);
}
#endif

int main(int count, char **names) {
    FILE *from = count == 3 ? fopen(names[1], "rb") : NULL;
    FILE *to = count == 3 ? fopen(names[2], "wb") : NULL;
    if (from == NULL || to == NULL) {
        fail("two files, please");
    }
    int64_t sizes[2];
    take(from, sizes, sizeof(sizes));
    const int64_t all = sizes[0] + sizes[1];
    buffer *buffers = (buffer *)block((size_t)all * sizeof(buffer));
    for (int64_t i = 0; i < all; ++i) {
        buffer *b = &buffers[i];
        take(from, b, 3 * sizeof(int64_t));
        if (b->ndim > MOST_DIMS) {
            fail("too many dimensions");
        }
        take(from, b->shape, (size_t)b->ndim * sizeof(int64_t));
        b->bytes = (size_t)b->bits / 8;
        for (int64_t dim = 0; dim < b->ndim; ++dim) {
            b->bytes *= (size_t)b->shape[dim];
        }
        b->data = (char *)block(b->bytes);
    }
    char **copies = (char **)block((size_t)all * sizeof(char *));
    for (int64_t i = 0; i < all; ++i) {
        copies[i] = (char *)block(buffers[i].bytes);
        if (i < sizes[0]) {
            take(from, buffers[i].data, buffers[i].bytes);
            memcpy(copies[i], buffers[i].data, buffers[i].bytes);
        }
    }
    for (int run = 0; run < 2; ++run) {
        garbage = run == 0 ? 0xa5 : 0x3c;
        for (int64_t i = sizes[0]; i < all; ++i) {
            memset(buffers[i].data, garbage, buffers[i].bytes);
        }
        call(buffers, sizes[0], sizes[1]);
        for (int64_t i = 0; i < all; ++i) {
            if (run == 0 && i >= sizes[0]) {
                memcpy(copies[i], buffers[i].data, buffers[i].bytes);
            } else if (memcmp(copies[i], buffers[i].data, buffers[i].bytes) != 0) {
                fail(i < sizes[0] ? "an input was written to"
                                  : "an output depends on what the memory held before");
            }
        }
    }
    for (int64_t i = sizes[0]; i < all; ++i) {
        fwrite(buffers[i].data, 1, buffers[i].bytes, to);
    }
    for (int64_t i = 0; i < all; ++i) {
        free(buffers[i].data);
        free(copies[i]);
    }
    free(buffers);
    free(copies);
    fclose(from);
    return fclose(to) == 0 ? 0 : 1;
}
