// What a thread asks of the device, recorded as a CUDA graph.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "atlasc/base/error.hpp"
#include "ckks/ring/device.hpp"
#include "devices/cuda/cuda.hpp"

namespace atlasc::ckks {

/// Bytes of a block with those behind it that nobody uses: blocks begin as cudaMalloc has it.
inline constexpr std::size_t alignment = 256;
inline std::size_t room_for(std::size_t bytes) {
    return (bytes + alignment - 1) / alignment * alignment;
}

/// Where blocks lie in one piece of memory: each in the first gap that has room.
class Places {
public:
    std::size_t take(std::size_t bytes) {
        const std::size_t size = room_for(bytes);
        std::size_t place = 0;
        for (const auto& [start, end] : taken_) {
            if (start >= place + size) {
                break;
            }
            place = end;
        }
        taken_.emplace(place, place + size);
        end_ = std::max(end_, place + size);
        return place;
    }
    void give_back(std::size_t place) { taken_.erase(place); }

    /// The greatest end of any block so far.
    std::size_t end() const { return end_; }
    bool empty() const { return taken_.empty(); }

private:
    std::map<std::size_t, std::size_t> taken_;  ///< start -> end
    std::size_t end_ = 0;
};

/// Bytes of device memory: blocks that are let go again, and tables, which stay as they are.
struct GraphNeeds {
    std::size_t blocks = 0;
    std::size_t tables = 0;
};

/// A run of some work by one thread. It either computes as always, and what it allocates is
/// measured; or it is captured: nothing is computed, and all that it allocates lies in memory of the
/// graph. The same work allocates the same in both.
class Recording {
public:
    /// Of this thread; null while it records nothing.
    static Recording*& current() {
        thread_local Recording* found = nullptr;
        return found;
    }

    /// As long as it lives, this thread records.
    class Scope {
    public:
        explicit Scope(Recording& recording) { current() = &recording; }
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;
        ~Scope() { current() = nullptr; }
    };

    /// Measures.
    Recording() = default;
    /// Captures, on a stream of its own: CUDA captures nothing on the one of all threads. `blocks`
    /// has `needs.blocks` bytes.
    Recording(cudaStream_t stream, const GraphNeeds& needs, char* blocks, char* tables)
        : stream_(stream), needs_(needs), blocks_(blocks), tables_(tables) {}

    bool captures() const { return blocks_ != nullptr; }
    cudaStream_t stream() const { return stream_; }
    GraphNeeds measured() const { return {places_.end(), std::max(table_bytes_, alignment)}; }

    // While measuring: of the engine's memory.

    void allocated(const void* pointer, std::size_t bytes) {
        placed_[pointer] = places_.take(bytes);
    }
    void let_go(const void* pointer) {
        const auto found = placed_.find(pointer);
        if (found != placed_.end()) {
            places_.give_back(found->second);
            placed_.erase(found);
        }
    }
    /// Of what was allocated last.
    void is_table(const void* pointer, std::size_t bytes) {
        let_go(pointer);
        table_bytes_ += room_for(bytes);
    }

    // While capturing.

    void* block(std::size_t bytes) {
        char* pointer = blocks_ + places_.take(bytes);
        if (places_.end() > needs_.blocks) {
            refuse("it allocates more than when it was measured");
        }
        return pointer;
    }

    /// Of a table or of a block; false for other memory.
    bool gives_back(void* pointer) {
        auto* place = static_cast<char*>(pointer);
        if (place >= blocks_ && place < blocks_ + needs_.blocks) {
            places_.give_back(static_cast<std::size_t>(place - blocks_));
            return true;
        }
        if (place >= tables_ && place < tables_ + needs_.tables) {
            return true;  // kernels read it whenever the graph is launched
        }
        foreign_ = true;
        return false;
    }

    void* table(const void* host, std::size_t bytes) {
        char* pointer = tables_ + table_bytes_;
        table_bytes_ += room_for(bytes);
        if (table_bytes_ > needs_.tables) {
            refuse("it has more tables than when it was measured");
        }
        const auto* first = static_cast<const char*>(host);
        filled_.emplace_back(pointer, std::vector<char>(first, first + bytes));
        return pointer;
    }

    void keep(std::shared_ptr<const void> read) { kept_.push_back(std::move(read)); }

    /// What its kernels read beside blocks and tables: until the graph ends.
    std::vector<std::shared_ptr<const void>> kept() { return std::move(kept_); }

    /// Refuses a run that left blocks, or let go of memory that its kernels may read (Error).
    void require_whole() const {
        if (!places_.empty() || foreign_) {
            refuse("it touches memory of others");
        }
    }

    /// Fills the tables, after the capture.
    void fill() const {
        for (const auto& [pointer, bytes] : filled_) {
            upload(pointer, bytes.data(), bytes.size());
        }
    }

    [[noreturn]] static void refuse(const char* why) {
        throw Error("this work cannot be captured", why);
    }

private:
    Places places_;
    std::size_t table_bytes_ = 0;
    std::map<const void*, std::size_t> placed_;
    cudaStream_t stream_ = nullptr;
    GraphNeeds needs_;
    char* blocks_ = nullptr;
    char* tables_ = nullptr;
    bool foreign_ = false;
    std::vector<std::pair<void*, std::vector<char>>> filled_;
    std::vector<std::shared_ptr<const void>> kept_;
};

/// Refuses what is no launch of a kernel while this thread captures (Error): a copy, or waiting.
inline void require_no_capture(const char* call) {
    const Recording* recording = Recording::current();
    if (recording != nullptr && recording->captures()) {
        Recording::refuse(call);
    }
}

/// The launches of some work, in their order.
class Graph {
public:
    /// Captures `work`, which was measured before. `blocks` lives as long as the graph is launched.
    /// Throws Error: the work or the device does not allow it.
    template <typename Work>
    Graph(Memory& memory, const GraphNeeds& needs, char* blocks, const Work& work)
        : tables_(memory, needs.tables) {
        const Stream own;
        Recording recording(own.stream, needs, blocks, tables_.get());
        check(cudaStreamBeginCapture(own.stream, cudaStreamCaptureModeThreadLocal),
              "cudaStreamBeginCapture");
        cudaGraph_t graph = nullptr;
        try {
            const Recording::Scope scope(recording);
            work();
            recording.require_whole();
        } catch (...) {
            if (cudaStreamEndCapture(own.stream, &graph) == cudaSuccess) {
                cudaGraphDestroy(graph);
            }
            cudaGetLastError();
            throw;
        }
        check(cudaStreamEndCapture(own.stream, &graph), "cudaStreamEndCapture");
        const cudaError_t made = cudaGraphInstantiateWithFlags(&launched_.graph, graph, 0);
        cudaGraphDestroy(graph);
        check(made, "cudaGraphInstantiateWithFlags");
        recording.fill();
        kept_ = recording.kept();
    }

    /// On the stream, behind what the device was asked to do already.
    void launch() const { check(cudaGraphLaunch(launched_.graph, stream()), "cudaGraphLaunch"); }

private:
    struct Stream {
        Stream() {
            check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                  "cudaStreamCreateWithFlags");
        }
        Stream(const Stream&) = delete;
        Stream& operator=(const Stream&) = delete;
        ~Stream() { cudaStreamDestroy(stream); }

        cudaStream_t stream = nullptr;
    };

    struct Launched {
        Launched() = default;
        Launched(const Launched&) = delete;
        Launched& operator=(const Launched&) = delete;
        /// A graph that runs still ends first.
        ~Launched() {
            if (graph != nullptr) {
                cudaGraphExecDestroy(graph);
            }
        }

        cudaGraphExec_t graph = nullptr;
    };

    Array<char> tables_;
    std::vector<std::shared_ptr<const void>> kept_;
    Launched launched_;  ///< destroyed before what it reads
};

}  // namespace atlasc::ckks
