// PyTorch without Intel GPUs refuses to index even a fake tensor that claims to be on one. This lets it.
#include <c10/core/impl/DeviceGuardImplInterface.h>
C10_REGISTER_GUARD_IMPL(XPU, c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::XPU>)
