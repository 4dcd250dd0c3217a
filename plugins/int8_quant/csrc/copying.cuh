// How rows of a and b come into shared memory: 16 bytes at a time, without a register in between from sm_80 on; before
// that through registers, filled when a stage begins and written when it ends.
//
// In shared memory a row has kDepth bytes, in chunks of 16 whose place is changed by the row's number, so that eight
// neighbouring rows, read at one chunk, lie in different banks.
#pragma once

#include "problem.cuh"

// INT8_EMULATED: on the CPU, tests say what these instructions and those of tensor cores do.
#if defined(INT8_EMULATED) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800)
#define INT8_ASYNC_COPIES 1
#else
#define INT8_ASYNC_COPIES 0
#endif

namespace int8_quant {

template <int kDepth>
__device__ __forceinline__ int swizzled(int row, int chunk) {
    static_assert(kDepth == 64 || kDepth == 128, "rows of 4 or 8 chunks");
    return row * kDepth + ((kDepth == 64 ? chunk ^ ((row >> 1) & 3) : chunk ^ (row & 7)) << 4);
}

#ifndef INT8_EMULATED
#if INT8_ASYNC_COPIES
__device__ __forceinline__ void copy_16(std::int8_t *to, const std::int8_t *from, bool take) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    const int bytes = take ? 16 : 0;  // the rest becomes zeros
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(address), "l"(from), "r"(bytes) : "memory");
}
#endif

__device__ __forceinline__ void commit_copies() {
#if INT8_ASYNC_COPIES
    asm volatile("cp.async.commit_group;\n" ::: "memory");
#endif
}

template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
#if INT8_ASYNC_COPIES
    asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
#endif
}
#endif

// kRows rows for each stage of kDepth bytes, by kThreads threads; a thread keeps its chunk's place in the depth.
template <int kRows, int kDepth, int kThreads, bool kImages>
class RowCopies {
    static constexpr int kChunks = kDepth / 16, kStep = kThreads / kChunks, kEach = (kRows + kStep - 1) / kStep;
    static constexpr int kAbsent = -1;

  public:
    // first: of the rows in a; limit: rows that there are. begin: byte of the depth where the block starts.
    __device__ __forceinline__ RowCopies(const Sizes &s, const std::int8_t *a, std::int64_t row_bytes, int first,
                                         int limit, int begin, int point, int thread)
        : a_(a), chunk_(thread % kChunks), row_(thread / kChunks), at_(begin + chunk_ * 16), fill_(point * 0x01010101) {
        for (int i = 0; i < kEach; i++) {
            const int row = first + row_ + i * kStep;
            from_[i] = kAbsent;  // zeros: were the last row read instead, all blocks would wait for one line of L2
            if (row >= limit) continue;
            if (!kImages) {
                from_[i] = row * int(row_bytes);
                continue;
            }
            const int positions = int(s.positions), image = row / positions, position = row - image * positions;
            const int y = position / int(s.out_width), x = position - y * int(s.out_width);
            y_[i] = y * int(s.stride_y) - int(s.pad_y);
            x_[i] = x * int(s.stride_x) - int(s.pad_x);
            from_[i] = image * int(s.height * s.width * s.pixel);
        }
        if (kImages) seek(s);
    }

    // Begins the copies of the stage at the current place, and goes on to the next one.
    __device__ __forceinline__ void begin(const Sizes &s, std::int8_t *stage) {
        const bool inside = at_ < int(s.depth);
        for (int i = 0; i < kEach; i++) {
            if (kRows % kStep != 0 && row_ + i * kStep >= kRows) continue;
            const bool take = inside && from_[i] != kAbsent;
            if (kImages) {
                copy_window(s, stage, i, take);
            } else {
                copy(stage, i, take ? from_[i] + at_ : 0, take);
            }
        }
        at_ += kDepth;
        if (kImages) {
            channel_ += kDepth;
            if (channel_ >= int(s.channels)) seek(s);
        }
    }

    // Where copies go through registers: writes what begin() read.
    __device__ __forceinline__ void end(std::int8_t *stage) {
#if !INT8_ASYNC_COPIES
        for (int i = 0; i < kEach; i++) {
            const int row = row_ + i * kStep;
            if (kRows % kStep != 0 && row >= kRows) continue;
            *reinterpret_cast<int4 *>(stage + swizzled<kDepth>(row, chunk_)) = held_[i];
        }
#endif
    }

  private:
    __device__ __forceinline__ void seek(const Sizes &s) {
        const int tap = at_ / int(s.channels);
        channel_ = at_ - tap * int(s.channels);
        const int down = tap / int(s.kernel_width);
        down_ = down * int(s.dilation_y);
        across_ = (tap - down * int(s.kernel_width)) * int(s.dilation_x);
    }

    __device__ __forceinline__ void copy_window(const Sizes &s, std::int8_t *stage, int i, bool take) {
        const int y = y_[i] + down_, x = x_[i] + across_;
        const bool in_image = unsigned(y) < unsigned(s.height) && unsigned(x) < unsigned(s.width);
        const int pixel = y * int(s.width) + x;
        if (in_image || !take) {
            copy(stage, i, take ? from_[i] + pixel * int(s.pixel) + channel_ : 0, take);
        } else {
            put(stage, i, make_int4(fill_, fill_, fill_, fill_));  // the padding counts as the zero point
        }
    }

    __device__ __forceinline__ void copy(std::int8_t *stage, int i, int from, bool take) {
#if INT8_ASYNC_COPIES
        copy_16(stage + swizzled<kDepth>(row_ + i * kStep, chunk_), a_ + from, take);
#else
        held_[i] = take ? *reinterpret_cast<const int4 *>(a_ + from) : make_int4(0, 0, 0, 0);
#endif
    }

    __device__ __forceinline__ void put(std::int8_t *stage, int i, int4 value) {
#if INT8_ASYNC_COPIES
        *reinterpret_cast<int4 *>(stage + swizzled<kDepth>(row_ + i * kStep, chunk_)) = value;
#else
        held_[i] = value;
#endif
    }

    const std::int8_t *a_;
    int from_[kEach];  // bytes from there, or kAbsent; whoever launches sees to it that 31 bits are enough
    int chunk_, row_, at_, fill_;
    int y_[kImages ? kEach : 1] = {}, x_[kImages ? kEach : 1] = {}, channel_ = 0, down_ = 0, across_ = 0;
#if !INT8_ASYNC_COPIES
    int4 held_[kEach];
#endif
};

}  // namespace int8_quant
