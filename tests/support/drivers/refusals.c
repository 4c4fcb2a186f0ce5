/* Calls the packed entry of a region in the way that argv[1] names, and prints what it answered:
 * the return code, whether the outputs are those of a good call, and the last error.
 *
 * region: int8[1,2,3,4], int32[4] -> int32[1,2,3,4]; it needs an arena. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

enum { DATA, BIAS, OUT, COUNT };

static const char *error = "";
static char error_text[4096];
static int workspaces, no_memory, keep_memory;

void TVMAPISetLastError(const char *message) {
    strncpy(error_text, message, sizeof(error_text) - 1);
    error = error_text;
}

void *TVMBackendAllocWorkspace(int device_type, int device_id, uint64_t bytes, int code, int bits) {
    (void)device_type, (void)device_id, (void)code, (void)bits;
    if (no_memory) {
        return NULL;
    }
    ++workspaces;
    return malloc(bytes);
}

int TVMBackendFreeWorkspace(int device_type, int device_id, void *workspace) {
    (void)device_type, (void)device_id;
    free(workspace);
    --workspaces;
    return keep_memory ? -1 : 0;
}

int32_t region(value *, int32_t *, int32_t, value *, int32_t *, void *);

static int64_t image[] = {1, 2, 3, 4}, image_strides[] = {24, 12, 4, 1};
static int64_t vector[] = {4}, vector_strides[] = {1};
static int8_t data[24 + 8];
static int32_t bias[4 + 8], out[24 + 8], expected[24];
static tensor tensors[COUNT];
static value args[COUNT];
static int32_t codes[COUNT], count;

static void good(void) {
    const tensor made[COUNT] = {
        {data, 1, 0, 4, 0, 8, 1, image, NULL, 0},
        {bias, 1, 0, 1, 0, 32, 1, vector, NULL, 0},
        {out, 1, 0, 4, 0, 32, 1, image, NULL, 0},
    };
    memcpy(tensors, made, sizeof(made));
    for (int i = 0; i < COUNT; ++i) {
        args[i].v_handle = &tensors[i];
        codes[i] = 7;
    }
    count = COUNT;
    memset(out, 0xa5, sizeof(out));
    for (int i = 0; i < 24; ++i) {
        data[i] = (int8_t)(i * 37 - 128);
    }
    for (int i = 0; i < 4; ++i) {
        bias[i] = 1000 * i - 7;
    }
}

static int32_t run(void) {
    value ret = {0};
    int32_t ret_code = 0;
    return region(args, codes, count, &ret, &ret_code, NULL);
}

static int is(const char *name, const char *wanted) {
    return strcmp(name, wanted) == 0;
}

/* Change the good call; where the outputs then are, NULL for an unknown name. */
static const int32_t *change(const char *name) {
    tensor *x = &tensors[DATA], *b = &tensors[BIAS], *y = &tensors[OUT];
    static int64_t shape[5] = {1, 2, 3, 5, 1}, strides[4] = {24, 12, 4, 1};
    if (is(name, "nothing")) {
    } else if (is(name, "NDArray handles")) {
        codes[DATA] = codes[BIAS] = codes[OUT] = 13;
    } else if (is(name, "byte_offset")) {
        memmove(data + 3, data, 24);
        memmove(bias + 1, bias, 16);
        x->byte_offset = 3;
        b->byte_offset = 4;
        y->byte_offset = 8;
        return out + 2;
    } else if (is(name, "dense strides")) {
        x->strides = image_strides;
        b->strides = vector_strides;
        y->strides = image_strides;
    } else if (is(name, "any stride of a dimension of one")) {
        strides[0] = 999;
        x->strides = strides;
    } else if (is(name, "dtype code")) {
        x->code = 1;
    } else if (is(name, "dtype bits")) {
        b->bits = 64;
    } else if (is(name, "dtype lanes")) {
        y->lanes = 4;
    } else if (is(name, "ndim")) {
        x->ndim = 5;
        x->shape = shape;
    } else if (is(name, "shape")) {
        x->shape = shape;
    } else if (is(name, "shape of the output")) {
        y->shape = shape;
    } else if (is(name, "stride")) {
        strides[1] = 16;
        x->strides = strides;
    } else if (is(name, "stride of the vector")) {
        strides[0] = 2;
        b->strides = strides;
    } else if (is(name, "misaligned data")) {
        b->data = (char *)bias + 2;
    } else if (is(name, "misaligned offset")) {
        y->byte_offset = 1;
    } else if (is(name, "no data")) {
        x->data = NULL;
    } else if (is(name, "no data but an offset")) {
        x->data = NULL;
        x->byte_offset = 8;
    } else if (is(name, "no output data")) {
        y->data = NULL;
    } else if (is(name, "no tensor")) {
        args[BIAS].v_handle = NULL;
    } else if (is(name, "device")) {
        x->device_type = 2;
    } else if (is(name, "device of the output")) {
        y->device_type = 8;
    } else if (is(name, "no argument")) {
        count = 0;
    } else if (is(name, "one argument less")) {
        count = COUNT - 1;
    } else if (is(name, "one argument more")) {
        count = COUNT + 1;
    } else if (is(name, "an integer for a tensor")) {
        args[DATA].v_int64 = 42;
        codes[DATA] = 0;
    } else if (is(name, "no memory")) {
        no_memory = 1;
    } else if (is(name, "memory that cannot be freed")) {
        keep_memory = 1;
    } else {
        return NULL;
    }
    return out;
}

int main(int words, char **names) {
    good();
    if (words != 2 || run() != 0) {
        return 1;
    }
    memcpy(expected, out, sizeof(expected));
    good();
    const int32_t *const at = change(names[1]);
    if (at == NULL) {
        return 1;
    }
    const int32_t answer = run();
    printf("%d\n%d\n%d\n%s\n", answer, memcmp(at, expected, sizeof(expected)) == 0, workspaces, error);
    return 0;
}
