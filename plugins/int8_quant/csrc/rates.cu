// How many operations a GPU can do with every number in registers: the ceilings that products are measured against.
// One launch does blocks * threads * loops * 16 dp4a, blocks * warps * loops * 8 mma, or blocks * 2 * loops * 4 wgmma.
#include "copying.cuh"
#include "wgmma.cuh"

namespace {
using namespace int8_quant;

struct RateParams {
    std::int64_t blocks, threads, loops, out_at;
};

__global__ void rate_dp4a(int *out, int loops, int b) {
    int sums[16], a = int(threadIdx.x) * 0x01010101 + b;
#pragma unroll
    for (int i = 0; i < 16; i++) sums[i] = int(threadIdx.x) + i;
    for (int loop = 0; loop < loops; loop++) {
#pragma unroll
        for (int i = 0; i < 16; i++) sums[i] = __dp4a(a, b, sums[i]);
        a += loop;
    }
    int total = 0;
#pragma unroll
    for (int i = 0; i < 16; i++) total += sums[i];
    out[std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x] = total;
}

__global__ void rate_mma(int *out, int loops) {
#if INT8_ASYNC_COPIES
    int sums[8][4] = {};
    unsigned a[4], b[2];
    for (int i = 0; i < 4; i++) a[i] = threadIdx.x * 2654435761u + i * 77;
    for (int i = 0; i < 2; i++) b[i] = threadIdx.x * 40503u + i * 13 + 0x01234567;
    for (int loop = 0; loop < loops; loop++) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            asm volatile(
                "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};\n"
                : "+r"(sums[i][0]), "+r"(sums[i][1]), "+r"(sums[i][2]), "+r"(sums[i][3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
    int total = 0;
#pragma unroll
    for (int i = 0; i < 32; i++) total += sums[i / 4][i % 4];
    out[std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x] = total;
#endif
}

constexpr int kBytes = (128 + 256) * 128 + 1024;

__global__ void __launch_bounds__(256, 1) rate_wgmma(int *out, int loops) {
#if INT8_WGMMA
    extern __shared__ __align__(1024) unsigned char raw[];
    const unsigned start = (shared_address(raw) + 1023u) & ~1023u;
    auto *words = reinterpret_cast<unsigned *>(raw + (start - shared_address(raw)));
    for (int i = threadIdx.x; i < (128 + 256) * 32; i += blockDim.x) words[i] = i * 2654435761u + threadIdx.x;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    int sums[128];
    const std::uint64_t a = matrix_of(start + threadIdx.x / 128 * 8192), b = matrix_of(start + 16384);
    for (int loop = 0; loop < loops; loop++) {
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++) wgmma_64x256x32<false>(sums, a + 2 * k, b + 2 * k, (loop | k) != 0);
        wgmma_commit();
        wgmma_wait<0>();
    }
    int total = 0;
#pragma unroll
    for (int i = 0; i < 128; i++) total += sums[i];
    out[std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x] = total;
#endif
}

int dp4a(void *const *pointers, const RateParams &p, cudaStream_t stream) {
    return launch(rate_dp4a, dim3(unsigned(p.blocks)), unsigned(p.threads), 0, stream, 1,
                  pointer<int>(pointers, p.out_at), int(p.loops), 5);
}
INT8_KERNEL(int8_rate_dp4a, RateParams, 1, dp4a);

int mma(void *const *pointers, const RateParams &p, cudaStream_t stream) {
    return launch(rate_mma, dim3(unsigned(p.blocks)), unsigned(p.threads), 0, stream, 1,
                  pointer<int>(pointers, p.out_at), int(p.loops));
}
INT8_KERNEL(int8_rate_mma, RateParams, 1, mma);

int wgmma(void *const *pointers, const RateParams &p, cudaStream_t stream) {
    const cudaError_t status = cudaFuncSetAttribute(rate_wgmma, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    if (status != cudaSuccess) return status;
    return launch(rate_wgmma, dim3(unsigned(p.blocks)), 256, kBytes, stream, 1, pointer<int>(pointers, p.out_at),
                  int(p.loops));
}
INT8_KERNEL(int8_rate_wgmma, RateParams, 1, wgmma);

}  // namespace
