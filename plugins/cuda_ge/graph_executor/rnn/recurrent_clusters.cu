// RNN, LSTM and GRU, all steps in one launch; see cluster.cuh.
//
// Half a warp computes all gates of one hidden unit: each of its 16 lanes keeps WIDTH numbers of each gate's row of r,
// multiplies them by the states of SEQUENCES sequences, and the lanes add up. Then warp s finishes sequence s, a lane for
// each of the block's units, which keep their states in registers and hand the new h to every block of the cluster.
//
// All blocks wait for the slowest at each step, so that nothing else happens between two barriers: results are stored, and
// the inputs of the next step read, while the others are waited for. A barrier lasts until what its threads stored before
// it has arrived, which takes longest for global memory.
#include "../ge/kernel.cuh"

#include "cluster.cuh"

namespace {

using namespace aicore;

constexpr int kThreads = 512, kLanes = 16;

template <int WIDTH, int SEQUENCES>
struct Shared {
    float h[2][SEQUENCES][kLanes * WIDTH];    // read from one, written to the other
    float scaled[SEQUENCES][kLanes * WIDTH];  // of a GRU: h times the reset gate
    float sums[4 * SEQUENCES][kClusterUnits + 1];
};

AICORE_HOST_DEVICE constexpr int gates_of(int cell) { return cell == kRnn ? 1 : cell == kLstm ? 4 : 3; }

template <int CELL, int WIDTH, int SEQUENCES>
struct Layer {
    static constexpr int kGates = gates_of(CELL);
    using Memory = Shared<WIDTH, SEQUENCES>;
    using States = float[SEQUENCES][kLanes * WIDTH];

    const RecurrentPointers<float> &on;
    const Recurrent &layer;
    Memory &shared;
    CellAt at;            // of the unit and the sequence that this thread finishes
    bool finishes;        // it does
    std::int64_t length;  // of that sequence
    float weights[kGates][WIDTH];
    float biases[kGates], last_bias;  // last_bias: of h r' of the hidden gate, where the reset gate scales it
    float h, c;
    float inputs[kGates];  // of a step: x w' of each gate

    __device__ Layer(const RecurrentPointers<float> &on_, const Recurrent &layer_)
        : on(on_), layer(layer_), shared(shared_of_block<Memory>()) {
        const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kClusterUnits;
        const int warp = threadIdx.x / 32;
        at = {static_cast<std::int64_t>(blockIdx.y), static_cast<std::int64_t>(blockIdx.z) * SEQUENCES + warp,
              first + threadIdx.x % 32, 0};
        finishes = warp < SEQUENCES && at.sequence < layer.batch && at.unit < layer.hidden;
        h = c = last_bias = 0.0f;
    }

    // Sums of COUNT gates that a lane is left with.
    template <int COUNT>
    static constexpr int kSums = most_left<kLanes / 2>(COUNT * SEQUENCES);

    __device__ void read_weights() {
        const std::int64_t unit = static_cast<std::int64_t>(blockIdx.x) * kClusterUnits + threadIdx.x / kLanes;
        const std::int64_t hidden = layer.hidden;
#pragma unroll
        for (int g = 0; g < kGates; g++) {
            const float *row = on.r + ((at.direction * kGates + g) * hidden + unit) * hidden;
#pragma unroll
            for (int i = 0; i < WIDTH; i++) {
                const std::int64_t k = column_of(i);
                weights[g][i] = unit < hidden && k < hidden ? row[k] : 0.0f;
            }
        }
    }

    // Of the i-th number of this lane: four side by side, then the other lanes' fours.
    __device__ static int column_of(int i) { return i / 4 * 4 * kLanes + threadIdx.x % kLanes * 4 + i % 4; }

    __device__ void begin() {
        float *words = reinterpret_cast<float *>(&shared);
        for (std::size_t i = threadIdx.x; i < sizeof(Memory) / sizeof(float); i += kThreads) words[i] = 0.0f;
        arrive_in_cluster();
        wait_for_cluster();  // nobody writes into memory that is still to become zero
        length = layer.steps;
        if (finishes) read_states();
        if (threadIdx.x / 32 < SEQUENCES) hand_out(&shared.h[0], h);
    }

    __device__ void read_states() {
        if (on.lengths != nullptr) length = on.lengths[at.sequence];
        const std::int64_t state = state_at(layer, at.direction, at.sequence, at.unit);
        if (on.initial_h != nullptr) h = on.initial_h[state];
        if (on.initial_c != nullptr) c = on.initial_c[state];
#pragma unroll
        for (int g = 0; g < kGates; g++) {
            biases[g] = on.b == nullptr ? 0.0f : on.b[(at.direction * 2 * kGates + g) * layer.hidden + at.unit];
            const float of_product = recurrent_bias(layer, on, at, g);
            if (CELL == kGruLinear && g == 2)
                last_bias = of_product;
            else
                biases[g] += of_product;
        }
    }

    // Asks for the inputs of a step long before they are needed.
    __device__ void read_inputs(int step) {
        if (!finishes || step >= layer.steps) return;
        const std::int64_t time = time_of(layer, at.direction, step);
        const float *from = on.projected + projected_at(layer, time, at.direction, at.sequence, at.unit);
#pragma unroll
        for (int g = 0; g < kGates; g++) inputs[g] = from[g * layer.hidden];
    }

    // The numbers of this warp's units to all blocks, by all of its lanes: four units to every fourth block.
    __device__ void hand_out(States *to, float value) {
        const int lane = threadIdx.x % 32, first = lane % 8 * 4;
        float4 four;
        four.x = __shfl_sync(0xffffffffu, value, first);
        four.y = __shfl_sync(0xffffffffu, value, first + 1);
        four.z = __shfl_sync(0xffffffffu, value, first + 2);
        four.w = __shfl_sync(0xffffffffu, value, first + 3);
        float *own = (*to)[threadIdx.x / 32] + blockIdx.x * kClusterUnits + first;
        const std::ptrdiff_t offset = own - reinterpret_cast<float *>(&shared);
#pragma unroll
        for (int i = 0; i < kMostClusterBlocks / 4; i++) {
            const unsigned rank = static_cast<unsigned>(lane / 8 + 4 * i);
            if (rank >= gridDim.x) continue;
            float *words = reinterpret_cast<float *>(&shared_of_rank(shared, rank));
            *reinterpret_cast<float4 *>(words + offset) = four;
        }
    }

    // shared.sums of COUNT gates from FIRST on: states @ r'.
    template <int FIRST, int COUNT>
    __device__ void multiply(const States &states) {
        constexpr int kValues = COUNT * SEQUENCES;
        float values[kValues] = {};
#pragma unroll
        for (int i = 0; i < WIDTH; i += 4)
#pragma unroll
            for (int s = 0; s < SEQUENCES; s++) {
                const float4 four = *reinterpret_cast<const float4 *>(states[s] + column_of(i));
#pragma unroll
                for (int g = 0; g < COUNT; g++) {
                    float &sum = values[g * SEQUENCES + s];
                    sum = fmaf(weights[FIRST + g][i], four.x, sum);
                    sum = fmaf(weights[FIRST + g][i + 1], four.y, sum);
                    sum = fmaf(weights[FIRST + g][i + 2], four.z, sum);
                    sum = fmaf(weights[FIRST + g][i + 3], four.w, sum);
                }
            }
        sum_lanes<kValues, kLanes / 2>(values);
        const Share share = share_of<kLanes / 2>(kValues);
#pragma unroll
        for (int i = 0; i < kSums<COUNT>; i++)
            if (i < share.count)
                shared.sums[FIRST * SEQUENCES + share.first + i][threadIdx.x / kLanes] = values[i];
    }

    __device__ float sum_of(int gate) const { return shared.sums[gate * SEQUENCES + threadIdx.x / 32][threadIdx.x % 32]; }

    template <bool PLAIN>
    __device__ float activated(int which, float gate) const {
        if constexpr (!PLAIN) return gate_activation(layer, at.direction, which, gate);
        return CELL != kRnn && which == 0 ? sigmoid_without_branch(gate) : tanhf(gate);
    }

    // What a step leaves in global memory.
    struct Left {
        float gates[kGates], h, last, y;
    };

    // The new state of the unit.
    template <bool PLAIN>
    __device__ void finish(float update, Left &left) {
        float next = 0.0f, next_c = 0.0f;
        float *gates = left.gates;
#pragma unroll
        for (int g = CELL == kGru ? 2 : 0; g < kGates; g++)
            gates[g] = inputs[g] + biases[g] + (CELL == kGruLinear && g == 2 ? 0.0f : sum_of(g));
        left.h = h;
        if constexpr (CELL == kRnn) {
            next = activated<PLAIN>(0, gates[0]);
        } else if constexpr (CELL == kLstm) {
            if (!PLAIN) gates[0] += peephole(layer, on, at, 0, c);
            if (!PLAIN) gates[2] += peephole(layer, on, at, 2, c);
            const float admit = activated<PLAIN>(0, gates[0]);
            const float forget = !PLAIN && layer.input_forget ? 1.0f - admit : activated<PLAIN>(0, gates[2]);
            next_c = forget * c + admit * activated<PLAIN>(1, gates[3]);
            if (!PLAIN) gates[1] += peephole(layer, on, at, 1, next_c);
            next = activated<PLAIN>(0, gates[1]) * activated<PLAIN>(2, next_c);
            left.last = c;
        } else if constexpr (CELL == kGruLinear) {
            left.last = sum_of(2) + last_bias;
            gates[2] += activated<PLAIN>(0, gates[1]) * left.last;
            const float open = activated<PLAIN>(0, gates[0]);
            next = (1.0f - open) * activated<PLAIN>(1, gates[2]) + open * h;
        } else {
            next = (1.0f - update) * activated<PLAIN>(1, gates[2]) + update * h;
        }
        const bool alive = at.time < length;
        left.y = alive ? next : 0.0f;
        if (alive) h = next;
        if (alive) c = next_c;
    }

    __device__ void store(const Left &left) const {
        if (on.y != nullptr) on.y[result_at(layer, at.time, at.direction, at.sequence, at.unit)] = left.y;
        keep_states(layer, on, at, left.h, left.last);
#pragma unroll
        for (int g = 0; g < kGates; g++) keep_gate(layer, on, at, g, left.gates[g]);
    }

    // The update gate of a GRU, and its state scaled by the reset gate.
    template <bool PLAIN>
    __device__ float finish_gates(Left &left) const {
        left.gates[0] = inputs[0] + biases[0] + sum_of(0);
        left.gates[1] = inputs[1] + biases[1] + sum_of(1);
        left.last = activated<PLAIN>(0, left.gates[1]) * h;
        return activated<PLAIN>(0, left.gates[0]);
    }

    __device__ void run_step(int step, bool plain) {
        const bool takes_part = threadIdx.x / 32 < SEQUENCES;  // this warp finishes a sequence
        float update = 0.0f;
        Left left = {};
        at.time = time_of(layer, at.direction, step);
        wait_for_cluster();
        if constexpr (CELL == kGru) {
            multiply<0, 2>(shared.h[step % 2]);
            __syncthreads();
            if (finishes) update = plain ? finish_gates<true>(left) : finish_gates<false>(left);
            if (takes_part) hand_out(&shared.scaled, left.last);
            arrive_in_cluster();
            wait_for_cluster();
            multiply<2, 1>(shared.scaled);
        } else {
            multiply<0, kGates>(shared.h[step % 2]);
        }
        __syncthreads();
        if (finishes && plain) finish<true>(update, left);
        if (finishes && !plain) finish<false>(update, left);
        if (takes_part) hand_out(&shared.h[(step + 1) % 2], h);
        arrive_in_cluster();
        read_inputs(step + 1);
        if (finishes) store(left);
    }

    __device__ void end() const {
        wait_for_cluster();  // nobody leaves while others write into its memory
        if (!finishes) return;
        const std::int64_t state = state_at(layer, at.direction, at.sequence, at.unit);
        if (on.y_h != nullptr) on.y_h[state] = h;
        if (on.y_c != nullptr) on.y_c[state] = c;
    }
};

template <int CELL, int WIDTH, int SEQUENCES>
__global__ void __launch_bounds__(kThreads)
    run_clusters(const RecurrentPointers<float> on, const Recurrent layer, const bool plain) {
#if AICORE_HAS_CLUSTERS
    Layer<CELL, WIDTH, SEQUENCES> run(on, layer);
    if (!layer.r_constant) wait_for_previous();
    run.read_weights();
    if (layer.r_constant) wait_for_previous();
    let_next_begin();
    run.begin();
    arrive_in_cluster();
    run.read_inputs(0);
    for (int step = 0; step < layer.steps; step++) run.run_step(step, plain);
    run.end();
#endif
}

using Launch = cudaError_t (*)(const RecurrentPointers<float> &, const Recurrent &, cudaStream_t);

template <int CELL, int WIDTH, int SEQUENCES>
cudaError_t launch(const RecurrentPointers<float> &on, const Recurrent &layer, cudaStream_t stream) {
    return launch_clusters(run_clusters<CELL, WIDTH, SEQUENCES>, layer, SEQUENCES, kThreads,
                           sizeof(Shared<WIDTH, SEQUENCES>), stream, on, layer, is_plain(layer, on.peepholes != nullptr));
}

template <int CELL, int WIDTH, int SEQUENCES>
Candidate<Launch> candidate() {
    return {SEQUENCES, reinterpret_cast<const void *>(run_clusters<CELL, WIDTH, SEQUENCES>), kThreads,
            sizeof(Shared<WIDTH, SEQUENCES>), launch<CELL, WIDTH, SEQUENCES>};
}

template <int CELL, int WIDTH>
int launch_for(const RecurrentPointers<float> &on, const Recurrent &layer, cudaStream_t stream) {
    const Candidate<Launch> candidates[] = {candidate<CELL, WIDTH, 1>(), candidate<CELL, WIDTH, 2>(),
                                            candidate<CELL, WIDTH, 3>(), candidate<CELL, WIDTH, 4>(),
                                            candidate<CELL, WIDTH, 5>(), candidate<CELL, WIDTH, 6>()};
    Launch best = nullptr;
    const cudaError_t error = best_of(candidates, layer, best);
    return error != cudaSuccess ? error : best(on, layer, stream);
}

template <int CELL>
int launch_for(const RecurrentPointers<float> &on, const Recurrent &layer, cudaStream_t stream) {
    if (layer.hidden <= 8 * kLanes) return launch_for<CELL, 8>(on, layer, stream);
    return launch_for<CELL, 16>(on, layer, stream);
}

// Everything behind the projection of the input.
int recurrent_clusters(void *const *pointers, const Recurrent &layer, cudaStream_t stream) {
    if (layer.directions * layer.batch * layer.hidden == 0) return cudaSuccess;
    if (layer.hidden > 16 * kLanes) return cudaErrorInvalidValue;
    const RecurrentPointers<float> on = recurrent_pointers<float>(pointers, layer);
    switch (layer.cell) {
        case kRnn: return launch_for<kRnn>(on, layer, stream);
        case kLstm: return launch_for<kLstm>(on, layer, stream);
        case kGruLinear: return launch_for<kGruLinear>(on, layer, stream);
        default: return launch_for<kGru>(on, layer, stream);
    }
}
AICORE_KERNEL(recurrent_clusters, Recurrent, 5, recurrent_clusters);

}  // namespace
