// The instructions of sm_90 that the product on wgmma is made of, each behind a name, and maps of matrices for copies.
#pragma once

#include "kernel.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define INT8_WGMMA 1
#else
#define INT8_WGMMA 0
#endif

namespace int8_quant {

// A CUtensorMap, declared here so that no header of the driver is needed.
struct alignas(64) TensorMap {
    std::uint64_t opaque[16];
};

// Boxes of `box` rows by 128 bytes of a matrix of bytes, swizzled as wgmma reads them; zeros beyond its ends.
inline int map_rows(TensorMap *map, const void *bytes, std::int64_t rows, std::int64_t columns, std::int64_t pitch,
                    int box) {
    using Encode = int (*)(TensorMap *, int, std::uint32_t, void *, const std::uint64_t *, const std::uint64_t *,
                           const std::uint32_t *, const std::uint32_t *, int, int, int, int);
    static Encode encode = nullptr;
    if (encode == nullptr) {
        void *found = nullptr;
        cudaDriverEntryPointQueryResult result;
        const cudaError_t status =
            cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
        if (status != cudaSuccess) return status;
        if (found == nullptr) return cudaErrorNotSupported;
        encode = reinterpret_cast<Encode>(found);
    }
    constexpr int kUint8 = 0, kNotInterleaved = 0, kSwizzle128 = 3, kPromote256 = 3, kZeros = 0;
    const std::uint64_t sizes[2] = {std::uint64_t(columns), std::uint64_t(rows)}, steps[1] = {std::uint64_t(pitch)};
    const std::uint32_t boxes[2] = {128, std::uint32_t(box)}, ones[2] = {1, 1};
    const int failed = encode(map, kUint8, 2, const_cast<void *>(bytes), sizes, steps, boxes, ones, kNotInterleaved,
                              kSwizzle128, kPromote256, kZeros);
    return failed ? cudaErrorInvalidValue : cudaSuccess;
}

#ifdef __CUDACC__
__device__ __forceinline__ unsigned shared_address(const void *p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
#endif

#if INT8_WGMMA
__device__ __forceinline__ void barrier_begin(unsigned barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void barriers_are_visible() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
}

__device__ __forceinline__ void barrier_expect(unsigned barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_wait(unsigned barrier, int phase) {
    unsigned done = 0;
    while (!done) {
        asm volatile(
            "{\n.reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n}"
            : "=r"(done)
            : "r"(barrier), "r"(phase)
            : "memory");
    }
}

// A barrier of `threads` threads of the block.
__device__ __forceinline__ void group_barrier(int name, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

__device__ __forceinline__ void copy_box(unsigned to, const TensorMap *map, unsigned barrier, int column, int row) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
            to),
        "l"(map), "r"(barrier), "r"(column), "r"(row)
        : "memory");
}

template <int kCount>
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

template <int kCount>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// A matrix of rows of 128 bytes, swizzled, eight rows to 1024 bytes.
__device__ __forceinline__ std::uint64_t matrix_of(unsigned address) {
    return std::uint64_t((address & 0x3FFFF) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

#define INT8_WGMMA_64X256X32(TYPES)                                                                                   \
    asm volatile(                                                                                                     \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"                                                                 \
        "wgmma.mma_async.sync.aligned.m64n256k32.s32." TYPES " {"                                                     \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "                  \
        "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "                  \
        "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "                  \
        "%56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, "                  \
        "%74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, "                  \
        "%92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, "                    \
        "%108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, "                  \
        "%123, %124, %125, %126, %127 "                                                                               \
        "}, %128, %129, p;\n}"                                                                                        \
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]),             \
          "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15]),       \
          "+r"(d[16]), "+r"(d[17]), "+r"(d[18]), "+r"(d[19]), "+r"(d[20]), "+r"(d[21]), "+r"(d[22]), "+r"(d[23]),     \
          "+r"(d[24]), "+r"(d[25]), "+r"(d[26]), "+r"(d[27]), "+r"(d[28]), "+r"(d[29]), "+r"(d[30]), "+r"(d[31]),     \
          "+r"(d[32]), "+r"(d[33]), "+r"(d[34]), "+r"(d[35]), "+r"(d[36]), "+r"(d[37]), "+r"(d[38]), "+r"(d[39]),     \
          "+r"(d[40]), "+r"(d[41]), "+r"(d[42]), "+r"(d[43]), "+r"(d[44]), "+r"(d[45]), "+r"(d[46]), "+r"(d[47]),     \
          "+r"(d[48]), "+r"(d[49]), "+r"(d[50]), "+r"(d[51]), "+r"(d[52]), "+r"(d[53]), "+r"(d[54]), "+r"(d[55]),     \
          "+r"(d[56]), "+r"(d[57]), "+r"(d[58]), "+r"(d[59]), "+r"(d[60]), "+r"(d[61]), "+r"(d[62]), "+r"(d[63]),     \
          "+r"(d[64]), "+r"(d[65]), "+r"(d[66]), "+r"(d[67]), "+r"(d[68]), "+r"(d[69]), "+r"(d[70]), "+r"(d[71]),     \
          "+r"(d[72]), "+r"(d[73]), "+r"(d[74]), "+r"(d[75]), "+r"(d[76]), "+r"(d[77]), "+r"(d[78]), "+r"(d[79]),     \
          "+r"(d[80]), "+r"(d[81]), "+r"(d[82]), "+r"(d[83]), "+r"(d[84]), "+r"(d[85]), "+r"(d[86]), "+r"(d[87]),     \
          "+r"(d[88]), "+r"(d[89]), "+r"(d[90]), "+r"(d[91]), "+r"(d[92]), "+r"(d[93]), "+r"(d[94]), "+r"(d[95]),     \
          "+r"(d[96]), "+r"(d[97]), "+r"(d[98]), "+r"(d[99]), "+r"(d[100]), "+r"(d[101]), "+r"(d[102]),               \
          "+r"(d[103]), "+r"(d[104]), "+r"(d[105]), "+r"(d[106]), "+r"(d[107]), "+r"(d[108]), "+r"(d[109]),           \
          "+r"(d[110]), "+r"(d[111]), "+r"(d[112]), "+r"(d[113]), "+r"(d[114]), "+r"(d[115]), "+r"(d[116]),           \
          "+r"(d[117]), "+r"(d[118]), "+r"(d[119]), "+r"(d[120]), "+r"(d[121]), "+r"(d[122]), "+r"(d[123]),           \
          "+r"(d[124]), "+r"(d[125]), "+r"(d[126]), "+r"(d[127])                                                      \
        : "l"(a), "l"(b), "r"(adds))

// d = a b^T, plus d if `adds`; a has 64 rows, b 256, both 32 bytes of depth.
template <bool kUnsigned>
__device__ __forceinline__ void wgmma_64x256x32(int (&d)[128], std::uint64_t a, std::uint64_t b, int adds) {
    if (kUnsigned) {
        INT8_WGMMA_64X256X32("u8.s8");
    } else {
        INT8_WGMMA_64X256X32("s8.s8");
    }
}
#endif

}  // namespace int8_quant
