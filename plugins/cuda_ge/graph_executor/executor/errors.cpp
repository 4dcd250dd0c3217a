#include "errors.hpp"

namespace aicore {

CudaError::CudaError(cudaError_t error, const std::string &where)
    : std::runtime_error(where + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error)), code(error) {}

bool CudaError::sticky() const {
    switch (code) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorECCUncorrectable:
        return true;
    default:
        return false;
    }
}

void check(cudaError_t code, const char *where) {
    if (code != cudaSuccess) {
        cudaGetLastError();  // or the next call, of whomever, reports it again
        throw CudaError(code, where);
    }
}

OnDevice::OnDevice(int device) {
    check(cudaGetDevice(&before_), "asking for the current device");
    if (before_ == device) return;
    check(cudaSetDevice(device), "making a device current");
    changed_ = true;
}

OnDevice::~OnDevice() {
    if (changed_) cudaSetDevice(before_);
}

}  // namespace aicore
