/* What a region asks of TVM's runtime, with a pool of POOL threads that are made for each call. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct {
    void *sync_handle;
    int32_t num_task;
} group;

typedef int (*function)(int task, group *tasks, void *job);

typedef struct {
    function work;
    void *job;
    int task;
    int result;
} share;

static group pool = {NULL, POOL};

static void *run(void *argument) {
    share *const mine = argument;
    mine->result = mine->work(mine->task, &pool, mine->job);
    return NULL;
}

int TVMBackendParallelLaunch(function work, void *job, int tasks) {
    pthread_t threads[POOL];
    share shares[POOL];
    int failed = tasks; /* 0 asks for the whole pool */
    for (int i = 0; i < POOL; ++i) {
        shares[i] = (share){work, job, i, 0};
        failed |= pthread_create(&threads[i], NULL, run, &shares[i]);
    }
    for (int i = 0; i < POOL; ++i) {
        pthread_join(threads[i], NULL);
        failed |= shares[i].result;
    }
    return failed;
}

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
