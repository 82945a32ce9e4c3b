// Streams and graphs of the stand-in: a stream other than that of all threads is there to be captured.
// A graph does again what was launched, with the arguments of then.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace stand_in {

/// Kernels, one after another whatever thread asks for them.
inline std::recursive_mutex device;

/// The stream that this thread captures, if any.
inline thread_local cudaStream_t capturing = nullptr;

/// Launches of graphs so far.
inline std::size_t graphs = 0;

}  // namespace stand_in

struct CUgraph_st {
    std::vector<std::function<cudaError_t()>> launches;
};

struct CUstream_st {
    CUgraph_st graph;
    bool broken = false;
};

struct CUgraphExec_st {
    CUgraph_st graph;
};

namespace stand_in {

/// A call that may not stand in a capture breaks it. CUDA allows some of them; the engine makes none.
inline bool in_capture() {
    if (capturing != nullptr) {
        capturing->broken = true;
    }
    return capturing != nullptr;
}

/// Does something on a stream, or captures it.
template <typename Launch>
cudaError_t on(cudaStream_t stream, const Launch& launch) {
    if (stream != nullptr) {
        stream->graph.launches.push_back(launch);
        return cudaSuccess;
    }
    if (in_capture()) {
        return cudaErrorStreamCaptureUnsupported;
    }
    const std::lock_guard<std::recursive_mutex> lock(device);
    return launch();
}

}  // namespace stand_in

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    *stream = new CUstream_st;
    return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    delete stream;
    return cudaSuccess;
}
inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    if (stand_in::asked("no capture")) {
        return cudaErrorStreamCaptureUnsupported;
    }
    stand_in::capturing = stream;
    return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    stand_in::capturing = nullptr;
    *graph = stream->broken ? nullptr : new CUgraph_st(std::move(stream->graph));
    return stream->broken ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}
inline cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* launched, cudaGraph_t graph,
                                                 unsigned long long) {
    *launched = new CUgraphExec_st{*graph};
    if (stand_in::asked("short graphs")) {
        (*launched)->graph.launches.pop_back();
    }
    return cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t launched) {
    delete launched;
    return cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t launched, cudaStream_t) {
    if (stand_in::in_capture()) {
        return cudaErrorStreamCaptureUnsupported;
    }
    const std::lock_guard<std::recursive_mutex> lock(stand_in::device);
    ++stand_in::graphs;
    stand_in::tally().launch_graph(launched->graph.launches.size());
    for (const auto& launch : launched->graph.launches) {
        if (const cudaError_t failed = launch(); failed != cudaSuccess) {
            return failed;
        }
    }
    return cudaSuccess;
}
