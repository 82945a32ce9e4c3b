// An engine that several threads may use.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "ckks/ckks_engine.hpp"

namespace atlasc::ckks {

/// One operation at a time: each uses all processors by itself, and brings its operands to another
/// form where it needs one (value.hpp). Ciphertexts may be let go by any thread at any time.
class SharedEngine {
public:
    explicit SharedEngine(std::unique_ptr<CkksEngine> engine) : engine_(std::move(engine)) {}

    /// `operation(engine)`, while no other thread uses the engine.
    template <typename Operation>
    auto with(Operation operation) {
        const std::lock_guard<std::mutex> alone(mutex_);
        return operation(*engine_);
    }

private:
    std::mutex mutex_;
    std::unique_ptr<CkksEngine> engine_;
};

}  // namespace atlasc::ckks
