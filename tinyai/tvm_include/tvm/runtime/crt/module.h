/* A library that is linked in: what TVM's generated code registers for the C runtime. */
#ifndef TVM_RUNTIME_CRT_MODULE_H_
#define TVM_RUNTIME_CRT_MODULE_H_

#include <tvm/runtime/c_backend_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `names`: their number as a little-endian uint16, then the names, each ended by a zero byte;
   funcs[i] is the function of the i-th name. */
typedef struct TVMFuncRegistry {
  const char *names;
  const TVMBackendPackedCFunc *funcs;
} TVMFuncRegistry;

typedef struct TVMModule {
  const TVMFuncRegistry *registry;
} TVMModule;

const TVMModule *TVMSystemLibEntryPoint(void);

#ifdef __cplusplus
}
#endif

#endif
