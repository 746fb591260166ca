// Which files make up NVIDIA's driver, and which capability needs which? libnvidia-container's lists, and the toolkit's
// for graphics.
#pragma once

#include <array>
#include <string_view>

#include "hooks/inject/inventory/inventory.hpp"

namespace situla::nvidia::table {

/// Video needs what compute needs, and display what graphics needs.
inline constexpr CapabilitySet kForCompute = kCompute | kVideo;
inline constexpr CapabilitySet kForGraphics = kGraphics | kDisplay;

/// A file by its name, and what needs it.
struct Rule {
  std::string_view name;
  CapabilitySet capabilities;
};

/// The files are NAME.<driver version>.
inline constexpr std::array kLibraries = {
    Rule{"libnvidia-ml.so", kUtility},
    Rule{"libnvidia-cfg.so", kUtility},
    Rule{"libnvidia-nscq.so", kUtility},
    Rule{"libcuda.so", kForCompute},
    Rule{"libcudadebugger.so", kForCompute},
    Rule{"libnvidia-opencl.so", kForCompute},
    // Also the shader compiler of the graphics libraries.
    Rule{"libnvidia-gpucomp.so", kForCompute | kForGraphics},
    Rule{"libnvidia-ptxjitcompiler.so", kForCompute},
    Rule{"libnvidia-fatbinaryloader.so", kForCompute},  // drivers before 450
    // Also the back end of GBM, by the link gbm/nvidia-drm_gbm.so.
    Rule{"libnvidia-allocator.so", kForCompute | kForGraphics},
    Rule{"libnvidia-compiler.so", kForCompute},  // drivers before 470
    Rule{"libnvidia-pkcs11.so", kForCompute},
    Rule{"libnvidia-pkcs11-openssl3.so", kForCompute},
    Rule{"libnvidia-nvvm.so", kForCompute},
    Rule{"libnvidia-tileiras.so", kForCompute},
    Rule{"libvdpau_nvidia.so", kVideo},
    Rule{"libnvidia-encode.so", kVideo},
    Rule{"libnvidia-opticalflow.so", kVideo},
    Rule{"libnvcuvid.so", kVideo},
    Rule{"libnvidia-eglcore.so", kForGraphics},
    Rule{"libnvidia-glcore.so", kForGraphics},
    Rule{"libnvidia-tls.so", kForGraphics},
    Rule{"libnvidia-glsi.so", kForGraphics},
    Rule{"libnvidia-fbc.so", kForGraphics},
    Rule{"libnvidia-ifr.so", kForGraphics},  // drivers before 495
    Rule{"libnvidia-rtcore.so", kForGraphics},
    Rule{"libnvoptix.so", kForGraphics},
    Rule{"libGLX_nvidia.so", kForGraphics},
    Rule{"libEGL_nvidia.so", kForGraphics},
    Rule{"libGLESv2_nvidia.so", kForGraphics},
    Rule{"libGLESv1_CM_nvidia.so", kForGraphics},
    Rule{"libnvidia-glvkspirv.so", kForGraphics},
    Rule{"libnvidia-cbl.so", kForGraphics},  // drivers before 470
    Rule{"libnvidia-vulkan-producer.so", kForGraphics},
    Rule{"libnvidia-ngx.so", kNgx},
};

/// Has to carry the ABI note of Linux 2.3.99; a second library of this name, for kernels without TLS, has another.
inline constexpr std::string_view kTlsLibrary = "libnvidia-tls.so";
/// Beneath the directory of libraries, where it is no directory of the dynamic linker.
inline constexpr std::string_view kVdpauLibrary = "libvdpau_nvidia.so", kVdpauDirectory = "vdpau";
/// The one that is asked, in a process of its own.
inline constexpr std::string_view kManagementLibrary = "libnvidia-ml.so";

/// NVIDIA's, but with version numbers of their own, "libnvidia-egl-gbm.so.1.1.2".
inline constexpr std::array<std::string_view, 5> kEglPlatforms = {"libnvidia-egl-gbm.so", "libnvidia-egl-wayland.so",
                                                                  "libnvidia-egl-wayland2.so", "libnvidia-egl-xcb.so",
                                                                  "libnvidia-egl-xlib.so"};

/// Made also where the host has no such link: programs look for these names.
struct NamedLink {
  std::string_view library;  ///< only with this one
  std::string_view path;     ///< beneath the directory of libraries
  std::string_view target;   ///< "V" at the end is the driver's version
  CapabilitySet capabilities;
};
inline constexpr std::array kLinks = {
    NamedLink{"libGLX_nvidia.so", "libGLX_indirect.so.0", "libGLX_nvidia.so.V", kForGraphics},
    NamedLink{"libnvidia-allocator.so", "gbm/nvidia-drm_gbm.so", "../libnvidia-allocator.so.1", kForGraphics},
};
/// Their link without a number is made always.
inline constexpr std::array<std::string_view, 2> kWithDeveloperLink = {"libcuda.so", "libnvidia-opticalflow.so"};

inline constexpr std::array kPrograms = {
    Rule{"nvidia-smi", kUtility},
    Rule{"nvidia-debugdump", kUtility},
    Rule{"nvidia-persistenced", kUtility},
    Rule{"nv-fabricmanager", kUtility},
    Rule{"nvidia-imex", kUtility},
    Rule{"nvidia-imex-ctl", kUtility},
    Rule{"nvidia-cuda-mps-control", kCompute},
    Rule{"nvidia-cuda-mps-server", kCompute},
};
/// Where they are on the host; inside they go to /usr/bin.
inline constexpr std::array<std::string_view, 6> kProgramDirectories = {
    "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"};

/// Beneath /run or /var/run; inside they go to /var/run.
inline constexpr std::array<std::string_view, 2> kSocketDirectories = {"/run", "/var/run"};
inline constexpr std::array kSockets = {
    Rule{"nvidia-persistenced/socket", kUtility},
    Rule{"nvidia-fabricmanager/socket", kUtility},
};

/// Looked for in /etc, /usr/local/share and /usr/share, in this order.
struct ConfigurationRule {
  std::string_view name;
  std::string_view target;  ///< directory inside
  CapabilitySet capabilities;
};
inline constexpr std::array<std::string_view, 3> kConfigurationDirectories = {"/etc", "/usr/local/share", "/usr/share"};
inline constexpr std::array kConfiguration = {
    ConfigurationRule{"glvnd/egl_vendor.d/10_nvidia.json", "/usr/share", kForGraphics},
    ConfigurationRule{"egl/egl_external_platform.d/15_nvidia_gbm.json", "/usr/share", kForGraphics},
    ConfigurationRule{"egl/egl_external_platform.d/10_nvidia_wayland.json", "/usr/share", kForGraphics},
    ConfigurationRule{"egl/egl_external_platform.d/09_nvidia_wayland2.json", "/usr/share", kForGraphics},
    ConfigurationRule{"egl/egl_external_platform.d/20_nvidia_xcb.json", "/usr/share", kForGraphics},
    ConfigurationRule{"egl/egl_external_platform.d/20_nvidia_xlib.json", "/usr/share", kForGraphics},
    ConfigurationRule{"nvidia/nvoptix.bin", "/usr/share", kForGraphics},
    ConfigurationRule{"OpenCL/vendors/nvidia.icd", "/etc", kForCompute},
    ConfigurationRule{"vulkan/icd.d/nvidia_icd.json", "/etc", kForGraphics},
    ConfigurationRule{"vulkan/icd.d/nvidia_icd.x86_64.json", "/etc", kForGraphics},
    ConfigurationRule{"vulkan/icd.d/nvidia_icd.aarch64.json", "/etc", kForGraphics},
    ConfigurationRule{"vulkan/icd.d/nvidia_layers.json", "/etc", kForGraphics},
    ConfigurationRule{"vulkan/implicit_layer.d/nvidia_layers.json", "/etc", kForGraphics},
};

/// Where libraries may be besides the directories that the dynamic linker's cache names.
inline constexpr std::array<std::string_view, 8> kLibraryDirectories = {
#if defined(__x86_64__)
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/lib/x86_64-linux-gnu",
#elif defined(__aarch64__)
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/lib/aarch64-linux-gnu",
#else
    "/usr/lib/powerpc64le-linux-gnu",
    "/usr/lib/powerpc64le-linux-gnu/nvidia/current",
    "/lib/powerpc64le-linux-gnu",
#endif
    "/usr/lib64",
    "/lib64",
    "/usr/lib/i386-linux-gnu",
    "/usr/lib32",
    "/usr/lib"};

}  // namespace situla::nvidia::table
