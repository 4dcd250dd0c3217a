// Where a convolution as a matrix product finds its numbers: rows are output pixels of all images, the inner axis goes
// through the channels of a group for one tap after the other.
#pragma once

#include "direct.cuh"

namespace aicore::cnn {

struct ConvGeometry {
    int height, width;    // of the images
    int channels, pixel;  // channels of a group; distance between pixels of x
    int out_width, out_pixels;
    int rows, depth;      // of the product
    int kernel_height, kernel_width, stride_height, stride_width, dilation_height, dilation_width;
    int begin_height, begin_width;
    int maps, y_pixel;    // maps of a group; distance between pixels of y

    void set_geometry(const ConvParams &c) {
        const Window &v = c.window;
        const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
        height = narrow(v.size[1]), width = narrow(v.size[2]);
        channels = narrow(c.channels), pixel = narrow(c.x.pixel);
        out_width = narrow(v.out[2]), out_pixels = narrow(v.out[1] * v.out[2]);
        rows = narrow(c.images * v.out[1] * v.out[2]), depth = narrow(v.kernel[1] * v.kernel[2] * c.channels);
        kernel_height = narrow(v.kernel[1]), kernel_width = narrow(v.kernel[2]);
        stride_height = narrow(v.stride[1]), stride_width = narrow(v.stride[2]);
        dilation_height = narrow(v.dilation[1]), dilation_width = narrow(v.dilation[2]);
        begin_height = narrow(v.begin[1]), begin_width = narrow(v.begin[2]);
        maps = narrow(c.maps), y_pixel = narrow(c.y.pixel);
    }
};

// Where along the depth the copies of a thread are: a tap and a channel.
struct DepthCursor {
    int channel, row, column;  // row and column of the tap
    int offset;                // of the element from that of the first tap's first channel
    unsigned bit;              // of the tap, in masks of taps_inside

    AICORE_HOST_DEVICE void start(const ConvGeometry &p, int depth) {
        const int tap = depth / p.channels;
        channel = depth - tap * p.channels;
        row = tap / p.kernel_width;
        column = tap - row * p.kernel_width;
        update(p);
    }

    AICORE_HOST_DEVICE void advance(const ConvGeometry &p, int steps) {
        channel += steps;
        while (channel >= p.channels) {
            channel -= p.channels;
            if (++column == p.kernel_width) {
                column = 0;
                row++;
            }
        }
        update(p);
    }

    AICORE_HOST_DEVICE void update(const ConvGeometry &p) {
        offset = (row * p.dilation_height * p.width + column * p.dilation_width) * p.pixel + channel;
        bit = row < p.kernel_height ? 1u << row | 1u << (16 + column) : ~0u;  // bits 15 and 31 are never set in a mask
    }
};

// The pixel on which the window of one output lies.
struct RowOrigin {
    int offset;     // of the element that the first tap meets; may lie before the image
    unsigned mask;  // which rows (low half) and columns (high half) of taps are inside

    AICORE_HOST_DEVICE void start(const ConvGeometry &p, int row, bool exists) {
        const int image = exists ? row / p.out_pixels : 0, at = exists ? row - image * p.out_pixels : 0;
        const int out_row = at / p.out_width, out_column = at - out_row * p.out_width;
        const int top = out_row * p.stride_height - p.begin_height, left = out_column * p.stride_width - p.begin_width;
        offset = ((image * p.height + top) * p.width + left) * p.pixel;
        mask = exists ? taps_inside(top, p.dilation_height, p.kernel_height, p.height) |
                            taps_inside(left, p.dilation_width, p.kernel_width, p.width) << 16
                      : 0u;
    }
};

}  // namespace aicore::cnn
