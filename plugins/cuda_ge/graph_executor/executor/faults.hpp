// Numbers that kernels set when they find something wrong in the data, such as an index that is out of range: a kernel
// cannot raise. They lie in memory of the host that the device writes to, so that looking at them costs nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace aicore {

class Faults {
  public:
    Faults() = default;
    ~Faults() { release(); }
    Faults(const Faults &) = delete;
    Faults &operator=(const Faults &) = delete;

    // The address of one more number, 0 until a kernel writes; the same for host and device.
    std::int64_t *add(int device);

    // Whether one was set. Cheap, and right for work that has ended.
    bool any() const;

    // (index, value) of those that were set, and 0 again from now on.
    std::vector<std::pair<std::size_t, std::int64_t>> take();

    void release();

  private:
    volatile std::int64_t &at(std::size_t i) const { return pages_[i / page_size][i % page_size]; }

    static constexpr std::size_t page_size = 512;
    std::vector<std::int64_t *> pages_;
    std::size_t count_ = 0;
};

}  // namespace aicore
