/* What would NVIDIA's management library say? A stand-in for libnvidia-ml.so.1 with the functions that Situla calls,
 * which reads its answers from the file $MOCK_NVML_FILE, else from etc/mock-nvml.conf in the nearest directory above
 * the library's own. One thing a line:
 *
 *   driver 999.88.77         "self": what the process may do that loaded the library, instead of a version
 *   cuda 13000
 *   gpu INDEX bus=0000:07:00.0 minor=0 uuid=GPU-... brand=14 arch=9.0 mig=0 pending=0 [error=lost|permission] name=to
 * the end of the line mig GPU gi=1 ci=0 uuid=MIG-... name=to the end of the line fail FUNCTION CODE       that function
 * always returns CODE hang FUNCTION            that function never returns
 *
 * Built a second time with MOCK_NVML_OLD it is a library from before MIG. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum {
  SUCCESS = 0,
  UNINITIALIZED = 1,
  INVALID_ARGUMENT = 2,
  NOT_SUPPORTED = 3,
  NO_PERMISSION = 4,
  NOT_FOUND = 6,
  DRIVER_NOT_LOADED = 9,
  LOST = 15
};

struct device {
  int gpu; /* of a MIG device: its GPU */
  unsigned minor, brand, major, lesser, mig, pending, gi, ci, known;
  int error;
  char bus[32], uuid[96], name[96];
};
static struct device gpus[32], migs[256];
static size_t mig_count;
static char driver[80];
static int cuda, initialized;
static struct {
  char function[64];
  int code;
} faults[16]; /* -1: hangs */
static size_t fault_count;

static FILE* open_beside_library(void) {
  Dl_info info;
  char path[4096];
  if (dladdr((void*)&mig_count, &info) == 0 || strlen(info.dli_fname) + 32 > sizeof path) return NULL;
  strcpy(path, info.dli_fname);
  for (char* slash = strrchr(path, '/'); slash != NULL; slash = strrchr(path, '/')) {
    strcpy(slash, "/etc/mock-nvml.conf");
    FILE* file = fopen(path, "re");
    if (file != NULL) return file;
    *slash = 0;
  }
  return NULL;
}

static void read_words(struct device* device, char* text) {
  char* name = strstr(text, " name=");
  if (name != NULL) {
    *name = 0;
    snprintf(device->name, sizeof device->name, "%.*s", (int)strcspn(name + 6, "\n"), name + 6);
  }
  for (char* word = strtok(text, " \n"); word != NULL; word = strtok(NULL, " \n")) {
    (void)sscanf(word, "bus=%31s", device->bus);
    (void)sscanf(word, "uuid=%95s", device->uuid);
    (void)sscanf(word, "minor=%u", &device->minor);
    (void)sscanf(word, "brand=%u", &device->brand);
    (void)sscanf(word, "arch=%u.%u", &device->major, &device->lesser);
    (void)sscanf(word, "mig=%u", &device->mig);
    (void)sscanf(word, "pending=%u", &device->pending);
    (void)sscanf(word, "gi=%u", &device->gi);
    (void)sscanf(word, "ci=%u", &device->ci);
    if (strcmp(word, "error=lost") == 0) device->error = LOST;
    if (strcmp(word, "error=permission") == 0) device->error = NO_PERMISSION;
  }
}

static int read_answers(void) {
  const char* place = getenv("MOCK_NVML_FILE");
  FILE* file = place != NULL ? fopen(place, "re") : open_beside_library();
  if (file == NULL) return DRIVER_NOT_LOADED;
  char line[1024];
  while (fgets(line, sizeof line, file) != NULL) {
    int index = 0, code = 0, read = 0;
    char word[64];
    (void)sscanf(line, "driver %79s", driver);
    (void)sscanf(line, "cuda %d", &cuda);
    if (sscanf(line, "gpu %d%n", &index, &read) == 1 && index >= 0 && (size_t)index < COUNT(gpus)) {
      gpus[index].known = 1;
      read_words(&gpus[index], line + read);
    } else if (sscanf(line, "mig %d%n", &index, &read) == 1 && mig_count < COUNT(migs)) {
      migs[mig_count].gpu = index;
      read_words(&migs[mig_count++], line + read);
    } else if (sscanf(line, "fail %63s %d", word, &code) == 2 || sscanf(line, "hang %63s", word) == 1) {
      if (fault_count == COUNT(faults)) abort();
      strcpy(faults[fault_count].function, word);
      faults[fault_count++].code = line[0] == 'h' ? -1 : code;
    }
  }
  fclose(file);
  return SUCCESS;
}

static int fault(const char* function) {
  for (size_t i = 0; i < fault_count; i++)
    if (strcmp(faults[i].function, function) == 0) {
      while (faults[i].code < 0) pause();
      return faults[i].code;
    }
  return initialized ? SUCCESS : UNINITIALIZED;
}
#define BEGIN                           \
  do {                                  \
    const int code_ = fault(__func__);  \
    if (code_ != SUCCESS) return code_; \
  } while (0)
#define DEVICE(device)                                      \
  do {                                                      \
    if ((device) == NULL) return INVALID_ARGUMENT;          \
    if ((device)->error != SUCCESS) return (device)->error; \
  } while (0)

static int is_mig(const struct device* device) {
  return device >= migs && device < migs + COUNT(migs);
}

static int copy(char* to, const char* from, unsigned size) {
  if (strlen(from) >= size) return 7; /* NVML_ERROR_INSUFFICIENT_SIZE */
  strcpy(to, from);
  return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  if (!initialized) {
    const int code = read_answers();
    if (code != SUCCESS) return code;
    initialized = 1;
  }
  BEGIN;
  return SUCCESS;
}

int nvmlInit_v2(void) {
  const int code = nvmlInitWithFlags(0);
  if (code != SUCCESS) return code;
  BEGIN;
  return SUCCESS;
}

int nvmlShutdown(void) {
  BEGIN;
  return SUCCESS;
}

const char* nvmlErrorString(int code) {
  switch (code) {
    case SUCCESS:
      return "Success";
    case NO_PERMISSION:
      return "Insufficient Permissions";
    case DRIVER_NOT_LOADED:
      return "Driver Not Loaded";
    case LOST:
      return "GPU is lost";
    default:
      return "Unknown Error";
  }
}

/* "uid 65534 caps 0 new privileges 0 variables 0 descriptors 3" */
static void describe_self(void) {
  unsigned long long caps = 0, value = 0;
  unsigned variables = 0, descriptors = 0, no_new_privs = 0;
  char line[256];
  FILE* status = fopen("/proc/self/status", "re");
  while (status != NULL && fgets(line, sizeof line, status) != NULL) {
    if (strncmp(line, "Cap", 3) == 0 && strncmp(line, "CapBnd", 6) != 0 && sscanf(line, "%*s %llx", &value) == 1)
      caps |= value;
    (void)sscanf(line, "NoNewPrivs: %u", &no_new_privs);
  }
  if (status != NULL) fclose(status);
  for (char** variable = environ; *variable != NULL; variable++) variables++;
  for (int fd = 0; fd < 1024; fd++) descriptors += fcntl(fd, F_GETFD) >= 0;
  snprintf(driver, sizeof driver, "uid %u caps %llx new privileges %u variables %u descriptors %u", (unsigned)geteuid(),
           caps, !no_new_privs, variables, descriptors);
}

int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  BEGIN;
  if (strcmp(driver, "self") == 0) describe_self();
  return copy(text, driver, size);
}

int nvmlSystemGetCudaDriverVersion(int* version) {
  BEGIN;
  *version = cuda;
  return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  BEGIN;
  *count = 0;
  for (size_t i = 0; i < COUNT(gpus); i++) *count += gpus[i].known;
  return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device** device) {
  BEGIN;
  if (index >= COUNT(gpus) || !gpus[index].known) return INVALID_ARGUMENT;
  *device = &gpus[index];
  return gpus[index].error;
}

int nvmlDeviceGetUUID(struct device* device, char* uuid, unsigned size) {
  BEGIN;
  DEVICE(device);
  return copy(uuid, device->uuid, size);
}

int nvmlDeviceGetMinorNumber(struct device* device, unsigned* minor) {
  BEGIN;
  DEVICE(device);
  if (is_mig(device)) return NOT_SUPPORTED;
  *minor = device->minor;
  return SUCCESS;
}

struct pci {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char name[32];
};

int nvmlDeviceGetPciInfo_v3(struct device* device, struct pci* pci) {
  BEGIN;
  DEVICE(device);
  memset(pci, 0, sizeof *pci);
  if (sscanf(device->bus, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device) != 3) return NOT_SUPPORTED;
  snprintf(pci->legacy, sizeof pci->legacy, "%04X:%02X:%02X.0", pci->domain & 0xFFFFU, pci->bus & 0xFFU,
           pci->device & 0xFFU);
  snprintf(pci->name, sizeof pci->name, "%08X:%02X:%02X.0", pci->domain, pci->bus & 0xFFU, pci->device & 0xFFU);
  return SUCCESS;
}

int nvmlDeviceGetName(struct device* device, char* name, unsigned size) {
  BEGIN;
  DEVICE(device);
  return copy(name, device->name, size);
}

int nvmlDeviceGetBrand(struct device* device, unsigned* brand) {
  BEGIN;
  DEVICE(device);
  *brand = device->brand;
  return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(struct device* device, int* major, int* minor) {
  BEGIN;
  DEVICE(device);
  *major = (int)device->major;
  *minor = (int)device->lesser;
  return SUCCESS;
}

#ifndef MOCK_NVML_OLD
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  BEGIN;
  *version = cuda;
  return SUCCESS;
}

int nvmlDeviceGetMigMode(struct device* device, unsigned* current, unsigned* pending) {
  BEGIN;
  DEVICE(device);
  *current = device->mig;
  *pending = device->pending;
  return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(struct device* device, unsigned* count) {
  BEGIN;
  DEVICE(device);
  *count = device->mig ? 7 : 0;
  return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct device* device, unsigned index, struct device** mig) {
  BEGIN;
  DEVICE(device);
  for (size_t i = 0; i < mig_count; i++)
    if (migs[i].gpu == device - gpus && index-- == 0) {
      *mig = &migs[i];
      return migs[i].error;
    }
  return NOT_FOUND;
}

int nvmlDeviceGetGpuInstanceId(struct device* device, unsigned* id) {
  BEGIN;
  DEVICE(device);
  if (!is_mig(device)) return NOT_SUPPORTED;
  *id = device->gi;
  return SUCCESS;
}

int nvmlDeviceGetComputeInstanceId(struct device* device, unsigned* id) {
  BEGIN;
  DEVICE(device);
  if (!is_mig(device)) return NOT_SUPPORTED;
  *id = device->ci;
  return SUCCESS;
}
#endif
