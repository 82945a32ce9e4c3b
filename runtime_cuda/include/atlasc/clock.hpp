// Progress of an execution, and the seconds of its ops.
#pragma once

#include <chrono>
#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

#include "atlasc/engine.hpp"

namespace atlasc {

/// Follows the ops of one execution; each op begins when the previous one ends.
class Clock {
public:
    using Seconds = std::chrono::duration<double>;

    /// `ops`: number of ops of the whole program. Now and then a line is written to `lines`, the
    /// first one after `quiet`.
    Clock(std::size_t ops, std::ostream& lines, Seconds quiet = Seconds(2),
          Seconds interval = Seconds(10))
        : ops_(ops), lines_(lines), interval_(interval), next_line_(started_ + quiet) {}

    /// From now on an op begins when the engine has computed all earlier ops, so that each op has
    /// its own time. A device then cannot overlap ops.
    void wait_for(Engine& engine) { engine_ = &engine; }

    /// Begin an op of the IR (without "ckks."), from a module of the model.
    void begin(const std::string& op, const std::string& place);

    /// End the last op.
    void end();

    /// Seconds since the execution began.
    double elapsed() const { return Seconds(Now::now() - started_).count(); }

    /// The times as JSON, for `atlasc inspect --timing`.
    std::string text(const std::string& program, const std::string& engine) const;

private:
    using Now = std::chrono::steady_clock;
    using Moment = std::chrono::time_point<Now, Seconds>;

    struct Entry {
        std::string op;
        std::string place;
        Moment began;
    };

    void say();

    std::size_t ops_;
    std::ostream& lines_;
    Seconds interval_;
    Moment started_ = Now::now();
    Moment next_line_;
    Moment ended_ = started_;
    Engine* engine_ = nullptr;
    std::vector<Entry> entries_;
};

}  // namespace atlasc
