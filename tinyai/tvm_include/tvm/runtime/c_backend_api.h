/* What TVM's runtime offers to generated functions: memory, threads, other functions. */
#ifndef TVM_RUNTIME_C_BACKEND_API_H_
#define TVM_RUNTIME_C_BACKEND_API_H_

#include <tvm/runtime/c_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A generated function in packed form; 0 is success. */
typedef int (*TVMBackendPackedCFunc)(TVMValue *args, int *type_codes, int num_args,
                                     TVMValue *ret_value, int *ret_type_code,
                                     void *resource_handle);

/* A function by its name, from the module `mod` or what it imports. */
TVM_DLL int TVMBackendGetFuncFromEnv(void *mod, const char *name, TVMFunctionHandle *out);

/* Memory for the length of a call; NULL where there is none. The dtype is a hint. */
TVM_DLL void *TVMBackendAllocWorkspace(int device_type, int device_id, uint64_t bytes,
                                       int dtype_code, int dtype_bits);
TVM_DLL int TVMBackendFreeWorkspace(int device_type, int device_id, void *workspace);

/* `task` on num_tasks threads, or on as many as the runtime sees fit where num_tasks is 0. */
typedef struct {
  void *sync_handle;
  int32_t num_task;
} TVMParallelGroupEnv;

typedef int (*FTVMParallelLambda)(int task_id, TVMParallelGroupEnv *group, void *data);

TVM_DLL int TVMBackendParallelLaunch(FTVMParallelLambda task, void *data, int num_tasks);
TVM_DLL int TVMBackendParallelBarrier(int task_id, TVMParallelGroupEnv *group);

/* `func` once a process; *handle is NULL before and belongs to the runtime. */
TVM_DLL int TVMBackendRunOnce(void **handle, int (*func)(void *), void *data, int bytes);

TVM_DLL int TVMBackendRegisterSystemLibSymbol(const char *name, void *address);

#ifdef __cplusplus
}
#endif

#endif
