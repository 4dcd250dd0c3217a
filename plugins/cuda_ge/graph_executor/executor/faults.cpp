#include "faults.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "errors.hpp"

namespace aicore {

std::int64_t *Faults::add(int device) {
    if (count_ == pages_.size() * page_size) {
        OnDevice current(device);
        void *page = nullptr;
        check(cudaHostAlloc(&page, page_size * sizeof(std::int64_t), cudaHostAllocMapped | cudaHostAllocPortable),
              "making room for what kernels report");
        pages_.push_back(static_cast<std::int64_t *>(page));
        std::fill_n(pages_.back(), page_size, 0);
    }
    std::int64_t *one = &pages_[count_ / page_size][count_ % page_size];
    count_++;
    return one;
}

bool Faults::any() const {
    for (std::size_t i = 0; i < count_; i++) {
        if (at(i) != 0) return true;
    }
    return false;
}

std::vector<std::pair<std::size_t, std::int64_t>> Faults::take() {
    std::vector<std::pair<std::size_t, std::int64_t>> found;
    for (std::size_t i = 0; i < count_; i++) {
        const std::int64_t value = at(i);
        if (value == 0) continue;
        found.emplace_back(i, value);
        at(i) = 0;
    }
    return found;
}

void Faults::release() {
    for (std::int64_t *page : pages_) cudaFreeHost(page);
    pages_.clear();
    count_ = 0;
}

}  // namespace aicore
