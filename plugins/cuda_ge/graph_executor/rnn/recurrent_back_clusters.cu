// Back through all steps of RNN, LSTM and GRU in one launch; see cluster.cuh, and back.cuh for what a step does.
//
// A block has the rows of r of its 32 units' gates. Once the gradients of these gates are known, eight threads for each
// four columns of r, whose numbers they keep in registers, multiply, and hand their sums to the block that has the units
// of these columns. There warp s finishes sequence s: a lane for each unit adds up what the blocks gave, in their order.
// What a step does not need from others, and what it leaves in global memory, has its place after the barrier's first part.
#include "../ge/kernel.cuh"

#include "back.cuh"
#include "cluster.cuh"

namespace {

using namespace aicore;

constexpr int kColumns = 4, kSlices = 8;  // columns of a thread, and threads that share them
constexpr int kMostThreads = kMostClusterBlocks * kClusterUnits / kColumns * kSlices;
constexpr int kResetSums = -1;

template <int SEQUENCES>
struct Shared {
    float of_gates[4][SEQUENCES][kClusterUnits];  // gradients, as they meet r
    float sums[2][kMostClusterBlocks][SEQUENCES][kClusterUnits];  // what each block gave: at this step, at the one before
    float reset_sums[kMostClusterBlocks][SEQUENCES][kClusterUnits];  // the same of the scaled state of a GRU
    float of_peepholes[SEQUENCES][kClusterUnits][3];  // of an LSTM, over the steps
};

AICORE_HOST_DEVICE constexpr int gates_of(int cell) { return cell == kRnn ? 1 : cell == kLstm ? 4 : 3; }

template <int CELL, int SEQUENCES>
struct Walk {
    static constexpr int kGates = gates_of(CELL);
    using Memory = Shared<SEQUENCES>;
    using Sums = float[kMostClusterBlocks][SEQUENCES][kClusterUnits];

    const BackPointers<float> &on;
    const RecurrentBack &back;
    const Recurrent &layer;
    Memory &shared;
    CellAt at;      // of the unit and the sequence that this thread finishes
    bool finishes;  // it does
    float weights[kGates][4][kColumns];
    float dh, dc;
    BackInputs inputs;    // of a step to come
    BackFactors factors;  // of the next step

    __device__ Walk(const BackPointers<float> &on_, const RecurrentBack &back_)
        : on(on_), back(back_), layer(back_.layer), shared(shared_of_block<Memory>()) {
        const int warp = threadIdx.x / 32;
        at = {static_cast<std::int64_t>(blockIdx.y), static_cast<std::int64_t>(blockIdx.z) * SEQUENCES + warp,
              static_cast<std::int64_t>(blockIdx.x) * kClusterUnits + threadIdx.x % 32, 0};
        finishes = warp < SEQUENCES && at.sequence < layer.batch && at.unit < layer.hidden;
        dh = dc = 0.0f;
        inputs = {};
        factors = {};
    }

    __device__ static int first_column() { return threadIdx.x / kSlices * kColumns; }

    __device__ static int first_row() { return threadIdx.x % kSlices * 4; }

    __device__ void read_weights() {
        const std::int64_t hidden = layer.hidden;
#pragma unroll
        for (int g = 0; g < kGates; g++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const std::int64_t unit = static_cast<std::int64_t>(blockIdx.x) * kClusterUnits + first_row() + i;
                const float *row = on.r + ((at.direction * kGates + g) * hidden + unit) * hidden;
#pragma unroll
                for (int j = 0; j < kColumns; j++) {
                    const std::int64_t column = first_column() + j;
                    weights[g][i][j] = unit < hidden && column < hidden ? row[column] : 0.0f;
                }
            }
    }

    __device__ void begin() {
        arrive_in_cluster();
        wait_for_cluster();  // every block is there, so that its memory can be written to
        if (!finishes) return;
        const std::int64_t state = state_at(layer, at.direction, at.sequence, at.unit);
        dh = optional(on.h_grad, state);
        dc = optional(on.c_grad, state);
        for (int i = 0; i < 3; i++) of_peepholes()[i] = 0.0f;
    }

    __device__ float *of_peepholes() const { return shared.of_peepholes[threadIdx.x / 32][threadIdx.x % 32]; }

    // Asks for what the step reads, long before it is needed.
    __device__ void read_inputs(int step) {
        if (!finishes || step >= layer.steps) return;
        CellAt there = at;
        there.time = time_back(layer, at.direction, step);
        inputs = back_inputs(layer, on, there);
    }

    __device__ void set_gate(int gate, float value) {
        if (threadIdx.x / 32 < SEQUENCES) shared.of_gates[gate][threadIdx.x / 32][threadIdx.x % 32] = value;
    }

    // half: of `sums`, or kResetSums.
    __device__ static Sums &sums_in(Memory &memory, int half) {
        return half == kResetSums ? memory.reset_sums : memory.sums[half];
    }

    // To every block its part of of_gates @ r, over COUNT gates from FIRST on.
    template <int FIRST, int COUNT>
    __device__ void multiply(int half) {
        constexpr int kValues = kColumns * SEQUENCES;
        float values[kValues] = {};
#pragma unroll
        for (int g = FIRST; g < FIRST + COUNT; g++)
#pragma unroll
            for (int s = 0; s < SEQUENCES; s++) {
                const float4 four = *reinterpret_cast<const float4 *>(&shared.of_gates[g][s][first_row()]);
#pragma unroll
                for (int j = 0; j < kColumns; j++) {
                    float &sum = values[s * kColumns + j];
                    sum = fmaf(weights[g][0][j], four.x, sum);
                    sum = fmaf(weights[g][1][j], four.y, sum);
                    sum = fmaf(weights[g][2][j], four.z, sum);
                    sum = fmaf(weights[g][3][j], four.w, sum);
                }
            }
        sum_lanes<kValues, kSlices / 2>(values);
        const Share share = share_of<kSlices / 2>(kValues);
        const unsigned rank = static_cast<unsigned>(first_column() / kClusterUnits);
        if (rank >= gridDim.x) return;
        Sums &sums = sums_in(shared_of_rank(shared, rank), half);
#pragma unroll
        for (int i = 0; i < most_left<kSlices / 2>(kValues); i++) {
            const int value = share.first + i;
            if (i < share.count)
                sums[blockIdx.x][value / kColumns][first_column() % kClusterUnits + value % kColumns] = values[i];
        }
    }

    __device__ float sum_of(int half) {
        const Sums &sums = sums_in(shared, half);
        float parts[kMostClusterBlocks], sum = 0.0f;
#pragma unroll
        for (unsigned rank = 0; rank < kMostClusterBlocks; rank++)  // all are under way at once
            parts[rank] = rank < gridDim.x ? sums[rank][threadIdx.x / 32][threadIdx.x % 32] : 0.0f;
#pragma unroll
        for (int rank = 0; rank < kMostClusterBlocks; rank++) sum += parts[rank];
        return sum;
    }

    // From inputs that were asked for a step ago, those of the step, and then asks for those of the next.
    __device__ void prepare(int step, bool plain) {
        if (!finishes || step >= layer.steps) return;
        factors = plain ? plain_factors(inputs) : back_factors(layer, on.p, at, inputs);
        read_inputs(step + 1);
    }

    // back_factors, where is_plain.
    __device__ static BackFactors plain_factors(const BackInputs &in) {
        BackFactors f = {};
        f.keep = 1.0f;
        f.alive = in.alive;
        if (!f.alive) return f;
        f.y = in.y;
        if constexpr (CELL == kRnn) {
            f.gates[0] = slope_of_tanh(tanhf(in.gates[0]));
        } else if constexpr (CELL == kLstm) {
            const float admit = sigmoid_without_branch(in.gates[0]), show = sigmoid_without_branch(in.gates[1]);
            const float forget = sigmoid_without_branch(in.gates[2]), made = tanhf(in.gates[3]);
            f.before = in.last;
            f.keep = forget;
            f.c = forget * in.last + admit * made;
            const float seen = tanhf(f.c);
            f.gates[0] = made * slope_of_sigmoid(admit);
            f.gates[1] = seen * slope_of_sigmoid(show);
            f.gates[2] = in.last * slope_of_sigmoid(forget);
            f.gates[3] = admit * slope_of_tanh(made);
            f.into_c = show * slope_of_tanh(seen);
        } else {
            const float update = sigmoid_without_branch(in.gates[0]), reset = sigmoid_without_branch(in.gates[1]);
            const float made = tanhf(in.gates[2]);
            f.gates[0] = (in.hidden - made) * slope_of_sigmoid(update);
            f.gates[1] = (CELL == kGruLinear ? in.last : in.hidden) * slope_of_sigmoid(reset);
            f.gates[2] = (1.0f - update) * slope_of_tanh(made);
            f.into_c = update;
            f.keep = reset;
        }
        return f;
    }

    __device__ static float slope_of_sigmoid(float y) { return y * (1.0f - y); }

    __device__ static float slope_of_tanh(float y) { return 1.0f - y * y; }

    __device__ void run_step(int step, bool plain) {
        at.time = time_back(layer, at.direction, step);
        if (step > 0) {
            wait_for_cluster();
            if (finishes) dh += sum_of((step + 1) % 2);
        }
        BackStep to = {};
        if (finishes) to = step_back(layer, factors, dh, dc);
        if constexpr (CELL == kGru) {
            set_gate(2, to.gates[2]);
            __syncthreads();
            multiply<2, 1>(kResetSums);
            arrive_in_cluster();
            wait_for_cluster();
            if (finishes) gru_reset(factors, sum_of(kResetSums), to);
        }
#pragma unroll
        for (int g = 0; g < kGates; g++) set_gate(g, CELL == kGruLinear && g == 2 ? to.last : to.gates[g]);
        if (CELL == kLstm && !plain && finishes) add_peepholes(factors, to, of_peepholes());
        dh = to.carried;
        __syncthreads();
        multiply<0, CELL == kGru ? 2 : kGates>(step % 2);
        arrive_in_cluster();
        if (!finishes) return;
        store_gates_grad(back, on, at, to);
        prepare(step + 1, plain);
    }

    __device__ void end() {
        if (layer.steps > 0) {
            wait_for_cluster();  // and nobody leaves while others write into its memory
            if (finishes) dh += sum_of((layer.steps + 1) % 2);
        }
        if (finishes) store_initial(back, on, at, dh, dc, of_peepholes());
    }
};

template <int CELL, int SEQUENCES>
__global__ void __launch_bounds__(kMostThreads)
    walk_back(const BackPointers<float> on, const RecurrentBack back, const bool plain) {
#if AICORE_HAS_CLUSTERS
    Walk<CELL, SEQUENCES> walk(on, back);
    if (!back.layer.r_constant) wait_for_previous();
    walk.read_weights();
    if (back.layer.r_constant) wait_for_previous();
    let_next_begin();
    walk.begin();
    walk.read_inputs(0);
    walk.prepare(0, plain);
    for (int step = 0; step < back.layer.steps; step++) walk.run_step(step, plain);
    walk.end();
#endif
}

// Enough for the columns of r, and a warp for each sequence.
template <int SEQUENCES>
unsigned threads_for(const Recurrent &layer) {
    const unsigned wanted = cluster_blocks(layer) * kClusterUnits / kColumns * kSlices;
    return wanted < 32 * SEQUENCES ? 32 * SEQUENCES : wanted;
}

using Launch = cudaError_t (*)(const BackPointers<float> &, const RecurrentBack &, cudaStream_t);

template <int CELL, int SEQUENCES>
cudaError_t launch(const BackPointers<float> &on, const RecurrentBack &back, cudaStream_t stream) {
    return launch_clusters(walk_back<CELL, SEQUENCES>, back.layer, SEQUENCES, threads_for<SEQUENCES>(back.layer),
                           sizeof(Shared<SEQUENCES>), stream, on, back, is_plain(back.layer, on.p != nullptr || back.peepholes));
}

template <int CELL, int SEQUENCES>
Candidate<Launch> candidate(const Recurrent &layer) {
    return {SEQUENCES, reinterpret_cast<const void *>(walk_back<CELL, SEQUENCES>), threads_for<SEQUENCES>(layer),
            sizeof(Shared<SEQUENCES>), launch<CELL, SEQUENCES>};
}

template <int CELL>
int launch_for(const BackPointers<float> &on, const RecurrentBack &back, cudaStream_t stream) {
    const Recurrent &layer = back.layer;
    const Candidate<Launch> candidates[] = {candidate<CELL, 1>(layer), candidate<CELL, 2>(layer),
                                            candidate<CELL, 3>(layer), candidate<CELL, 4>(layer),
                                            candidate<CELL, 5>(layer), candidate<CELL, 6>(layer)};
    Launch best = nullptr;
    const cudaError_t error = best_of(candidates, layer, best);
    return error != cudaSuccess ? error : best(on, back, stream);
}

int recurrent_back_clusters(void *const *pointers, const RecurrentBack &back, cudaStream_t stream) {
    const Recurrent &layer = back.layer;
    if (layer.directions * layer.batch * layer.hidden == 0) return cudaSuccess;
    if (layer.hidden > kMostClusterBlocks * kClusterUnits) return cudaErrorInvalidValue;
    const BackPointers<float> on = back_pointers<float>(pointers, back);
    switch (layer.cell) {
        case kRnn: return launch_for<kRnn>(on, back, stream);
        case kLstm: return launch_for<kLstm>(on, back, stream);
        case kGruLinear: return launch_for<kGruLinear>(on, back, stream);
        default: return launch_for<kGru>(on, back, stream);
    }
}
AICORE_KERNEL(recurrent_back_clusters, RecurrentBack, 4, recurrent_back_clusters);

}  // namespace
