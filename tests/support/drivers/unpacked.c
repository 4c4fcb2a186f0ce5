/* A program around a network that TVM built with interface-api=c and unpacked-api=1: every sample of
   the standard input goes through it, the outputs go to the standard output. The network has one
   input and one output, of INPUT_BYTES and OUTPUT_BYTES. */
#include <stdio.h>
#include <stdlib.h>
#include <tvm/runtime/c_backend_api.h>

#include "tvmgen_default.h"

void *TVMBackendAllocWorkspace(int device_type, int device_id, uint64_t bytes, int code, int bits) {
  (void)device_type, (void)device_id, (void)code, (void)bits;
  return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

int TVMBackendFreeWorkspace(int device_type, int device_id, void *workspace) {
  (void)device_type, (void)device_id;
  free(workspace);
  return 0;
}

int main(void) {
  static _Alignas(64) char input[INPUT_BYTES];
  static _Alignas(64) char output[OUTPUT_BYTES];
  struct tvmgen_default_inputs inputs = {.INPUT_NAME = input};
  struct tvmgen_default_outputs outputs = {.output = output};
  while (fread(input, 1, INPUT_BYTES, stdin) == INPUT_BYTES) {
    if (tvmgen_default_run(&inputs, &outputs) != 0) {
      return 1;
    }
    fwrite(output, 1, OUTPUT_BYTES, stdout);
  }
  return 0;
}
