#include "atlasc/clock.hpp"

#include <iomanip>
#include <sstream>

#include "atlasc/base/error.hpp"
#include "atlasc/base/json.hpp"

namespace atlasc {

void Clock::begin(const std::string& op, const std::string& place) {
    end();
    entries_.push_back({op, place, ended_});
    if (ended_ >= next_line_) {
        say();
        next_line_ = ended_ + interval_;
    }
}

void Clock::end() {
    if (engine_ != nullptr) {
        engine_->wait();
    }
    ended_ = Now::now();
}

void Clock::say() {
    const std::size_t done = entries_.size() - 1;
    const auto seconds = static_cast<long>(elapsed());
    std::ostringstream line;
    line << "executing: " << done << '/' << ops_ << " (" << (ops_ == 0 ? 0 : 100 * done / ops_)
         << "%), " << seconds / 3600 << std::setfill('0') << ':' << std::setw(2)
         << seconds / 60 % 60 << ':' << std::setw(2) << seconds % 60 << " elapsed ["
         << entries_.back().op << ' ' << printable(entries_.back().place) << "]\n";
    lines_ << line.str() << std::flush;
}

std::string Clock::text(const std::string& program, const std::string& engine) const {
    std::ostringstream json;
    json << std::fixed << std::setprecision(6) << "{\"format\": 1, \"program\": "
         << json_string(program) << ", \"target\": " << json_string(engine)
         << ", \"runs\": 1, \"ops\": [";
    for (std::size_t at = 0; at < entries_.size(); ++at) {
        const Entry& entry = entries_[at];
        const Moment next = at + 1 < entries_.size() ? entries_[at + 1].began : ended_;
        json << (at == 0 ? "\n" : ",\n") << " {\"op\": " << json_string("ckks." + entry.op)
             << ", \"location\": " << json_string(entry.place)
             << ", \"measured\": " << (next - entry.began).count() << '}';
    }
    json << "\n]}\n";
    return json.str();
}

}  // namespace atlasc
