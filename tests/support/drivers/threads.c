/* THREADS threads call the region ENTRY at once, RUNS times each, and check every output. The
   standard input holds for each thread a sample of INPUT_BYTES and its output of OUTPUT_BYTES.
   SHARED_ARENA gives all calls the same memory: a mistake, for those who check the checker. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tvm/runtime/c_backend_api.h>

int32_t ENTRY(TVMValue *args, int32_t *codes, int32_t count, TVMValue *ret, int32_t *ret_code,
              void *resource);

static char samples[THREADS][INPUT_BYTES + OUTPUT_BYTES];

#ifdef SHARED_ARENA
static _Alignas(64) char arena[1 << 20];
#endif

void *TVMBackendAllocWorkspace(int device_type, int device_id, uint64_t bytes, int code, int bits) {
  (void)device_type, (void)device_id, (void)code, (void)bits;
#ifdef SHARED_ARENA
  return bytes <= sizeof(arena) ? arena : NULL;
#else
  return aligned_alloc(64, (bytes + 63) / 64 * 64);
#endif
}

int TVMBackendFreeWorkspace(int device_type, int device_id, void *workspace) {
  (void)device_type, (void)device_id;
#ifdef SHARED_ARENA
  (void)workspace;
#else
  free(workspace);
#endif
  return 0;
}

void TVMAPISetLastError(const char *message) { fprintf(stderr, "%s\n", message); }

/* The tensors are bare, as those of the AOT executor. Returns how many outputs were wrong. */
static void *work(void *sample) {
  char *const input = sample;
  char *const output = malloc(OUTPUT_BYTES);
  DLTensor tensors[2];
  TVMValue args[2];
  int32_t codes[2] = {kTVMDLTensorHandle, kTVMDLTensorHandle};
  memset(tensors, 0, sizeof(tensors));
  for (int i = 0; i < 2; ++i) {
    tensors[i].data = i == 0 ? input : output;
    tensors[i].device.device_type = kDLCPU;
    tensors[i].dtype.code = kDLOpaqueHandle;
    args[i].v_handle = &tensors[i];
  }
  intptr_t wrong = 0;
  for (int run = 0; run < RUNS; ++run) {
    memset(output, 0x55, OUTPUT_BYTES);
    wrong += ENTRY(args, codes, 2, NULL, NULL, NULL) != 0 ||
             memcmp(output, input + INPUT_BYTES, OUTPUT_BYTES) != 0;
  }
  free(output);
  return (void *)wrong;
}

int main(void) {
  pthread_t threads[THREADS];
  if (fread(samples, sizeof(samples[0]), THREADS, stdin) != THREADS) {
    return 2;
  }
  for (int i = 0; i < THREADS; ++i) {
    if (pthread_create(&threads[i], NULL, work, samples[i]) != 0) {
      return 3;
    }
  }
  intptr_t total = 0;
  for (int i = 0; i < THREADS; ++i) {
    void *wrong = NULL;
    pthread_join(threads[i], &wrong);
    total += (intptr_t)wrong;
  }
  printf("%d runs, %d wrong\n", THREADS * RUNS, (int)total);
  return total != 0;
}
