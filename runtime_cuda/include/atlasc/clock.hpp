// How far an execution is, and what its ops take.
#pragma once

#include <chrono>
#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

#include "atlasc/engine.hpp"

namespace atlasc {

/// Follows the ops of one execution; each begins where the one before it ends.
class Clock {
public:
    using Seconds = std::chrono::duration<double>;

    /// `ops`: of the whole program. Now and then a line goes to `lines`, the first after `quiet`.
    Clock(std::size_t ops, std::ostream& lines, Seconds quiet = Seconds(2),
          Seconds interval = Seconds(10))
        : ops_(ops), lines_(lines), interval_(interval), next_line_(started_ + quiet) {}

    /// From now on an op begins when the engine has computed those before it, so that each has the
    /// time that is its own. Costs what a device could do meanwhile.
    void wait_for(Engine& engine) { engine_ = &engine; }

    /// An op of the IR, without "ckks.", and the module of the model that it comes from.
    void begin(const std::string& op, const std::string& place);

    /// The last op ends.
    void end();

    /// Since the execution began, in seconds.
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
