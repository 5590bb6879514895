// A stand-in for libamdhip64: the calls that the launcher makes, and those of
// code that ROCm's compiler built, with HIP's own prototypes and structures.
// Every call is checked and written as a line of
// JSON to $STANDIN_HIP_LOG. Devices are the host: a launch runs the kernel's
// host build on the parameters it is given.
//
//   STANDIN_HIP_ARCHS  architecture of each device, "gfx1151:xnack-,gfx1100"
//   STANDIN_HIP_FAIL   "hipModuleLoadData:209:1": that call returns error 209
//                      the first 1 times; without the last number always
//   STANDIN_NAME       (when compiled) what the log calls this runtime
#include <elf.h>
#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>

#include "checks.h"

// What the launcher takes for granted, having no header of HIP.
static_assert(offsetof(hipDeviceProp_t, gcnArchName) == 1160);
static_assert(sizeof(hipDeviceProp_t::gcnArchName) == 256);
static_assert(sizeof(hipDeviceProp_t) == 1472);

namespace {

struct Module {
  int device;
  std::set<std::string> kernels;
};
struct Function {
  const Module* module;
  std::string name;
};

std::mutex mutex;  // of what follows, and of the log
std::map<std::string, int> failures;
std::set<const void*> functions;
std::set<std::string> registered_kernels;
std::map<const void*, std::string> registered;

thread_local int current_device = 0;
thread_local hipError_t last_error = hipSuccess;

void log(const std::string& call, const std::string& fields) {
  const char* path = std::getenv("STANDIN_HIP_LOG");
  if (path == nullptr) return;
  const std::lock_guard<std::mutex> lock(mutex);
  FILE* file = std::fopen(path, "a");
  std::fprintf(file,
               "{\"runtime\": \"%s\", \"call\": \"%s\", \"current\": %d%s}\n",
               STANDIN_NAME, call.c_str(), current_device, fields.c_str());
  std::fclose(file);
}

hipError_t status(const std::string& call, hipError_t error = hipSuccess) {
  if (const char* wanted = std::getenv("STANDIN_HIP_FAIL")) {
    std::istringstream fields(wanted);
    std::string name, code, times;
    std::getline(fields, name, ':');
    std::getline(fields, code, ':');
    std::getline(fields, times, ':');
    const std::lock_guard<std::mutex> lock(mutex);
    if (name == call &&
        (times.empty() || failures[call]++ < std::stoi(times))) {
      error = static_cast<hipError_t>(std::stoi(code));
    }
  }
  if (error != hipSuccess) last_error = error;
  return error;
}

std::string architecture(int device) {
  const char* all = std::getenv("STANDIN_HIP_ARCHS");
  std::istringstream names(all != nullptr ? all : "gfx1151");
  std::string name;
  for (int i = 0; i <= device; ++i) {
    if (!std::getline(names, name, ',')) return "";
  }
  return name;
}

// The kernels of a code object: the dynamic symbols NAME.kd.
bool read_code_object(const unsigned char* image, std::set<std::string>* kernels,
                      size_t* size) {
  const auto* elf = reinterpret_cast<const Elf64_Ehdr*>(image);
  constexpr unsigned char kHsa = 64;
  constexpr int kAmdGpu = 224;
  if (std::memcmp(elf->e_ident, ELFMAG, SELFMAG) != 0 ||
      elf->e_ident[EI_OSABI] != kHsa || elf->e_machine != kAmdGpu) {
    return false;
  }
  *size = elf->e_shoff + size_t{elf->e_shentsize} * elf->e_shnum;
  const auto* sections =
      reinterpret_cast<const Elf64_Shdr*>(image + elf->e_shoff);
  for (int i = 0; i < elf->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_DYNSYM) continue;
    const char* names = reinterpret_cast<const char*>(
        image + sections[sections[i].sh_link].sh_offset);
    const auto* symbols =
        reinterpret_cast<const Elf64_Sym*>(image + sections[i].sh_offset);
    for (size_t s = 0; s < sections[i].sh_size / sizeof(Elf64_Sym); ++s) {
      const std::string name = names + symbols[s].st_name;
      if (name.size() > 3 && name.substr(name.size() - 3) == ".kd")
        kernels->insert(name.substr(0, name.size() - 3));
    }
  }
  return true;
}

unsigned long long fnv(const unsigned char* bytes, size_t size) {
  unsigned long long hash = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < size; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3ull;
  return hash;
}

int kernel_index(const std::string& name) {
#define NAME(symbol, type, head_dim, normed, pairs) #symbol,
  static const char* const names[] = {RDNA35_KERNELS(NAME)};
  int index = 0;
  for (const char* each : names) {
    if (name == each) return index;
    ++index;
  }
  return -1;
}

// Logs a launch and does it, with the host build of the kernel.
hipError_t launch(const char* call, const std::string& name, int module_device,
                  dim3 grid, dim3 block, unsigned shared, hipStream_t stream,
                  const void* params) {
  rdna35::RopeCacheLaunch launch = {kernel_index(name), grid.x, grid.y, {}};
  std::memcpy(&launch.params, params, sizeof(launch.params));
  std::ostringstream fields;
  fields << ", \"name\": \"" << name << "\", \"module_device\": "
         << module_device << ", \"grid\": [" << grid.x << ", " << grid.y << ", "
         << grid.z << "], \"block\": [" << block.x << ", " << block.y << ", "
         << block.z << "], \"shared\": " << shared
         << ", \"stream\": " << reinterpret_cast<uintptr_t>(stream)
         << ", \"waves_per_group\": " << rdna35::kWavesPerGroup
         << ", \"num_waves\": " << launch.params.num_waves
         << ", \"params\": \"";
  const auto* bytes = static_cast<const unsigned char*>(params);
  for (size_t i = 0; i < sizeof(launch.params); ++i) {
    char hex[3];
    std::snprintf(hex, sizeof(hex), "%02x", bytes[i]);
    fields << hex;
  }
  fields << '"';
  log(call, fields.str());
  const hipError_t error =
      status(call, module_device == current_device ? hipSuccess
                                                   : hipErrorInvalidHandle);
  if (error == hipSuccess) rdna35::run_rope_cache_on_host(launch);
  return error;
}

}  // namespace

extern "C" {

hipError_t hipGetDevice(int* device) {
  *device = current_device;
  return status("hipGetDevice");
}

hipError_t hipSetDevice(int device) {
  log("hipSetDevice", ", \"device\": " + std::to_string(device));
  if (architecture(device).empty())
    return status("hipSetDevice", hipErrorInvalidDevice);
  const hipError_t error = status("hipSetDevice");
  if (error == hipSuccess) current_device = device;
  return error;
}

// hipGetDeviceProperties is a macro for hipGetDevicePropertiesR0600.
hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int device) {
  log("hipGetDeviceProperties", ", \"device\": " + std::to_string(device));
  const hipError_t error =
      status("hipGetDeviceProperties", architecture(device).empty()
                                           ? hipErrorInvalidDevice
                                           : hipSuccess);
  if (error != hipSuccess) return error;
  std::memset(properties, 0x5a, sizeof(*properties));
  std::snprintf(properties->gcnArchName, sizeof(properties->gcnArchName), "%s",
                architecture(device).c_str());
  return hipSuccess;
}

hipError_t hipModuleLoadData(hipModule_t* module, const void* image) {
  const auto* bytes = static_cast<const unsigned char*>(image);
  std::set<std::string> kernels;
  size_t size = 0;
  const bool good = read_code_object(bytes, &kernels, &size);
  std::ostringstream fields;
  fields << ", \"size\": " << size << ", \"fnv\": " << fnv(bytes, size);
  log("hipModuleLoadData", fields.str());
  const hipError_t error =
      status("hipModuleLoadData", good ? hipSuccess : hipErrorInvalidImage);
  if (error != hipSuccess) return error;
  *module =
      reinterpret_cast<hipModule_t>(new Module{current_device, kernels});
  return hipSuccess;
}

hipError_t hipModuleUnload(hipModule_t module) {
  log("hipModuleUnload", "");
  delete reinterpret_cast<Module*>(module);
  return status("hipModuleUnload");
}

hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module,
                                const char* name) {
  log("hipModuleGetFunction", std::string(", \"name\": \"") + name + "\"");
  const auto* of = reinterpret_cast<const Module*>(module);
  const hipError_t error =
      status("hipModuleGetFunction",
             of->kernels.count(name) ? hipSuccess : hipErrorNotFound);
  if (error != hipSuccess) return error;
  const auto* made = new Function{of, name};
  const std::lock_guard<std::mutex> lock(mutex);
  functions.insert(made);
  *function = reinterpret_cast<hipFunction_t>(const_cast<Function*>(made));
  return hipSuccess;
}

hipError_t hipModuleLaunchKernel(hipFunction_t f, unsigned grid_x,
                                 unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y,
                                 unsigned block_z, unsigned shared,
                                 hipStream_t stream, void** params,
                                 void** extra) {
  const auto* function = reinterpret_cast<const Function*>(f);
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (functions.count(function) == 0) std::abort();
  }
  if (extra != nullptr) std::abort();
  // What a GPU would do: a function of another device's module is refused.
  return launch("hipModuleLaunchKernel", function->name,
                function->module->device, dim3(grid_x, grid_y, grid_z),
                dim3(block_x, block_y, block_z), shared, stream, params[0]);
}

// ---- for code that ROCm's compiler built -----------------------------------

void** __hipRegisterFatBinary(const void* data) {
  struct Wrapper {
    unsigned magic, version;
    const unsigned char* binary;
    void* unused;
  };
  const auto* wrapper = static_cast<const Wrapper*>(data);
  size_t size = 0;
  constexpr unsigned kHipf = 0x48495046;
  if (wrapper->magic != kHipf ||
      !read_code_object(wrapper->binary, &registered_kernels, &size)) {
    std::abort();
  }
  return reinterpret_cast<void**>(&registered_kernels);
}

void __hipRegisterFunction(void**, const void* handle, char*, const char* name,
                           unsigned, void*, void*, dim3*, dim3*, int*) {
  if (registered_kernels.count(name) == 0) std::abort();
  registered[handle] = name;
}

void __hipUnregisterFatBinary(void**) {}

hipError_t __hipPopCallConfiguration(dim3*, dim3*, size_t*, hipStream_t*) {
  std::abort();  // of the <<<>>> syntax, which nothing uses
}

hipError_t hipFuncGetAttributes(hipFuncAttributes*, const void* function) {
  log("hipFuncGetAttributes", ", \"name\": \"" + registered.at(function) + "\"");
  return status("hipFuncGetAttributes");
}

hipError_t hipLaunchKernel(const void* function, dim3 grid, dim3 block,
                           void** args, size_t shared, hipStream_t stream) {
  return launch("hipLaunchKernel", registered.at(function), current_device,
                grid, block, static_cast<unsigned>(shared), stream, args[0]);
}

const char* hipGetErrorName(hipError_t error) {
  switch (error) {
    case hipErrorInvalidValue:
      return "hipErrorInvalidValue";
    case hipErrorInvalidDevice:
      return "hipErrorInvalidDevice";
    case hipErrorInvalidImage:
      return "hipErrorInvalidImage";
    case hipErrorNoBinaryForGpu:
      return "hipErrorNoBinaryForGpu";
    case hipErrorInvalidHandle:
      return "hipErrorInvalidHandle";
    case hipErrorNotFound:
      return "hipErrorNotFound";
    case hipErrorStreamCaptureUnsupported:
      return "hipErrorStreamCaptureUnsupported";
    default:
      return "hipErrorUnknown";
  }
}

hipError_t hipGetLastError() {
  log("hipGetLastError", "");
  const hipError_t error = last_error;
  last_error = hipSuccess;
  return error;
}

}  // extern "C"
