/* SPDX-License-Identifier: Apache-2.0
 *
 * How kernels of any plugin reach aicore's CUDA launcher. Copy this file into your plugin, as it is: it needs nothing
 * but a C compiler. The launcher refuses kernels of another version.
 *
 * A kernel is a function that launches work on a stream and returns. It is called once while a CUDA Graph is captured,
 * and the graph is replayed from then on, so it must not allocate, synchronise, or look at the numbers.
 *
 * A Python extension hands a kernel over as a capsule around a `const struct aicore_cuda_kernel *` that lives as long
 * as the process, under the name AICORE_CUDA_KERNEL_CAPSULE.
 */
#ifndef AICORE_CUDA_LAUNCH_H
#define AICORE_CUDA_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AICORE_CUDA_LAUNCH_VERSION 1
#define AICORE_CUDA_KERNEL_CAPSULE "aicore_cuda_kernel_v1"

/* pointers: device memory of the operands, then the results, then the workspace if the kernel declares one, then
 *           arrays that `bind` made. An absent operand is NULL. All are dense, in C order, and aligned to 64 bytes.
 * params:   the bytes that `bind` made of the op's attributes and sizes; the same at each launch.
 * stream:   a cudaStream_t, of the device that is current.
 * Returns 0, or the cudaError_t of the launch. */
typedef int (*aicore_cuda_launch)(void *const *pointers, size_t count, const void *params, size_t size, void *stream);

struct aicore_cuda_kernel {
    uint32_t version;    /* AICORE_CUDA_LAUNCH_VERSION */
    uint32_t params;     /* bytes of params; the launcher refuses any other size */
    uint32_t pointers;   /* least number of pointers */
    uint32_t reserved;   /* 0 */
    const char *name;    /* for errors and profiles */
    aicore_cuda_launch launch;
};

#ifdef __cplusplus
}
#endif
#endif
