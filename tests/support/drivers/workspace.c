/* What a region asks of TVM's runtime. */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdlib.h>

void *TVMBackendAllocWorkspace(int device_type, int device_id, uint64_t bytes, int code, int bits) {
    (void)device_type, (void)device_id, (void)code, (void)bits;
    void *memory = NULL;
    return posix_memalign(&memory, 64, bytes) == 0 ? memory : NULL;
}

int TVMBackendFreeWorkspace(int device_type, int device_id, void *workspace) {
    (void)device_type, (void)device_id;
    free(workspace);
    return 0;
}
