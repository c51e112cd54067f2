// A stand-in for libcuda: one device, whose memory is files in $FAKE_CUDA_FOLDER, so that two processes can
// share it as they share a GPU's. $FAKE_CUDA_FAULT names a call that fails, or "crash" or "hang".
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, MAP_FAILED_RESULT = 205, NOT_SUPPORTED = 801 };

typedef unsigned long long Pointer;
typedef struct {
  char reserved[64];
} IpcHandle;

static struct {
  char* base;
  size_t size;
  char name[64];
} allocation;

static int fault(const char* call) {
  const char* wanted = getenv("FAKE_CUDA_FAULT");
  return wanted != NULL && strcmp(wanted, call) == 0;
}

static void path_of(const char* name, char* path) { snprintf(path, 512, "%s/%s", getenv("FAKE_CUDA_FOLDER"), name); }

static char* map(const char* name, size_t size, int creation, int sharing) {
  char path[512];
  path_of(name, path);
  int file = open(path, O_RDWR | creation, 0600);
  if (file < 0) return NULL;
  if (ftruncate(file, (off_t)size) != 0) return NULL;
  char* base = mmap(NULL, size, PROT_READ | PROT_WRITE, sharing, file, 0);
  close(file);
  return base == MAP_FAILED ? NULL : base;
}

// A client of MPS is known to its daemon: here, by a file in the pipe folder.
static void register_mps_client(void) {
  const char* pipes = getenv("CUDA_MPS_PIPE_DIRECTORY");
  if (pipes == NULL || fault("register")) return;
  char path[512];
  snprintf(path, sizeof path, "%s/client-%d", pipes, getpid());
  close(open(path, O_CREAT | O_WRONLY, 0600));
}

int cuInit(unsigned flags) {
  if (fault("crash")) abort();
  if (fault("hang")) pause();
  register_mps_client();
  return flags != 0 ? INVALID_VALUE : fault("cuInit") ? 100 : SUCCESS;
}

int cuGetErrorName(int error, const char** name) {
  *name = error == 100 ? "CUDA_ERROR_NO_DEVICE" : error == NOT_SUPPORTED ? "CUDA_ERROR_NOT_SUPPORTED" : NULL;
  return *name == NULL ? INVALID_VALUE : SUCCESS;
}

int cuDriverGetVersion(int* version) { return *version = 13020, SUCCESS; }
int cuDeviceGetCount(int* count) { return *count = fault("no device") ? 0 : 1, SUCCESS; }

int cuDeviceGetName(char* name, int length, int device) {
  snprintf(name, (size_t)length, "Fake GPU %d", device);
  return SUCCESS;
}

int cuDeviceTotalMem_v2(size_t* size, int device) { return *size = 80ull << 30, device; }

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 16 ? 132 : attribute == 75 ? 9 : attribute == 76 ? 0 : -1;
  return device;
}

int cuDevicePrimaryCtxRetain(void** context, int device) { return *context = (void*)0xC0DE, device; }
int cuDevicePrimaryCtxRelease_v2(int device) { return device; }
int cuCtxSetCurrent(void* context) { return context == NULL || context == (void*)0xC0DE ? SUCCESS : INVALID_VALUE; }
int cuCtxSynchronize(void) { return SUCCESS; }

int cuMemAlloc_v2(Pointer* pointer, size_t size) {
  snprintf(allocation.name, sizeof allocation.name, "memory-%d", getpid());
  allocation.base = map(allocation.name, size, O_CREAT, MAP_SHARED);
  allocation.size = size;
  *pointer = (Pointer)allocation.base;
  return allocation.base == NULL ? MAP_FAILED_RESULT : SUCCESS;
}

int cuMemFree_v2(Pointer pointer) {
  char path[512];
  path_of(allocation.name, path);
  unlink(path);
  return munmap((void*)pointer, allocation.size);
}

int cuMemsetD32_v2(Pointer pointer, unsigned word, size_t count) {
  if (fault("cuMemsetD32_v2")) return NOT_SUPPORTED;
  for (size_t i = 0; i < count; ++i) ((unsigned*)pointer)[i] = word;
  return SUCCESS;
}

int cuMemcpyDtoH_v2(void* to, Pointer from, size_t size) { return memcpy(to, (void*)from, size), SUCCESS; }

int cuIpcGetMemHandle(IpcHandle* handle, Pointer pointer) {
  if ((char*)pointer != allocation.base) return INVALID_VALUE;
  memset(handle, 0, sizeof *handle);
  snprintf(handle->reserved, sizeof handle->reserved, "%s", allocation.name);
  return SUCCESS;
}

// By value, as the real one: a handle that arrives damaged names no file.
int cuIpcOpenMemHandle_v2(Pointer* pointer, IpcHandle handle, unsigned flags) {
  if (fault("cuIpcOpenMemHandle_v2") || flags != 1) return NOT_SUPPORTED;
  char path[512];
  struct stat status;
  path_of(handle.reserved, path);
  if (stat(path, &status) != 0) return INVALID_VALUE;
  allocation.size = (size_t)status.st_size;
  *pointer = (Pointer)map(handle.reserved, allocation.size, 0, fault("private copy") ? MAP_PRIVATE : MAP_SHARED);
  return SUCCESS;
}

int cuIpcCloseMemHandle(Pointer pointer) { return munmap((void*)pointer, allocation.size); }
