// What a GPU can do at most, as lines of JSON: products in double precision, 64-bit products of
// integers, and bytes that a copy reads and writes.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr int rounds = 4096, chains = 8, threads = 256;

void require(cudaError_t status) {
    if (status != cudaSuccess) {
        std::fprintf(stderr, "error: %s\n", cudaGetErrorString(status));
        std::exit(2);
    }
}

__global__ void doubles(double* out, double factor) {
    double sums[chains];
    for (int at = 0; at < chains; ++at) {
        sums[at] = threadIdx.x + at;
    }
    for (int round = 0; round < rounds; ++round) {
        for (int at = 0; at < chains; ++at) {
            sums[at] = fma(sums[at], factor, 1.0);
        }
    }
    double sum = 0;
    for (int at = 0; at < chains; ++at) {
        sum += sums[at];
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

__global__ void words(std::uint64_t* out, std::uint64_t factor) {
    std::uint64_t high[chains];
    for (int at = 0; at < chains; ++at) {
        high[at] = ~std::uint64_t{threadIdx.x} - at;
    }
    for (int round = 0; round < rounds; ++round) {
        for (int at = 0; at < chains; ++at) {
            high[at] = __umul64hi(high[at], factor) + round;
        }
    }
    std::uint64_t sum = 0;
    for (int at = 0; at < chains; ++at) {
        sum += high[at];
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

template <typename Call>
double seconds(Call call) {
    cudaEvent_t begin, end;
    require(cudaEventCreate(&begin));
    require(cudaEventCreate(&end));
    double least = 1e9;
    for (int round = 0; round < 4; ++round) {  // the first one warms the device
        require(cudaEventRecord(begin));
        call();
        require(cudaEventRecord(end));
        require(cudaEventSynchronize(end));
        require(cudaGetLastError());
        float taken = 0;
        require(cudaEventElapsedTime(&taken, begin, end));
        least = round == 0 ? least : (taken * 1e-3 < least ? taken * 1e-3 : least);
    }
    return least;
}

}  // namespace

int main() {
    cudaDeviceProp device;
    require(cudaGetDeviceProperties(&device, 0));
    const int blocks = 32 * device.multiProcessorCount;
    const double operations = double{rounds} * chains * threads * blocks;
    const std::size_t bytes = std::size_t{1} << 30;
    void *from = nullptr, *to = nullptr;
    require(cudaMalloc(&from, bytes));
    require(cudaMalloc(&to, bytes));
    const double one = seconds([&] { doubles<<<blocks, threads>>>(static_cast<double*>(to), 0.9); });
    const double two = seconds([&] {
        words<<<blocks, threads>>>(static_cast<std::uint64_t*>(to), 0xdeadbeefcafef00d);
    });
    const double copy =
        seconds([&] { require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice)); });
    std::printf("{\"name\": \"fp64\", \"rate\": %g}\n", 2 * operations / one * 1e-12);
    std::printf("{\"name\": \"words\", \"rate\": %g}\n", operations / two * 1e-12);
    std::printf("{\"name\": \"copy\", \"rate\": %g}\n", 2.0 * static_cast<double>(bytes) / copy * 1e-12);
    return 0;
}
