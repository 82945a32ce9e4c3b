#include "atlasc/ledger.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <iomanip>
#include <numeric>
#include <set>
#include <sstream>
#include <system_error>

#include "atlasc/base/error.hpp"
#include "atlasc/base/json.hpp"
#include "src/base/system.hpp"

namespace atlasc {
namespace {

constexpr std::size_t identity_digits = 32;
constexpr std::size_t digest_digits = 64;
constexpr std::size_t shown_digits = 8;
constexpr std::uint64_t max_size = std::uint64_t{1} << 28;  // half a million queries
constexpr std::uint64_t max_count = std::uint64_t{1} << 20;
constexpr double rounding = 1e-9;  // of a sum of what was spent

[[noreturn]] void fail_opening(const std::string& path) {
    throw Error("the ledger " + path + " cannot be written",
                errno == ELOOP ? "it is a link, not a plain file"
                               : std::generic_category().message(errno),
                "make room on the disk, or keep the keys in a folder that you may write to");
}

/// The text of a member, or what stands for one that is not there.
std::string text_of(const Json::Object& line, const std::string& name) {
    const auto found = line.find(name);
    return found == line.end() ? "" : found->second.string();
}

bool is_member(const std::string& name) {
    static const std::set<std::string> known = {"event",  "query", "program", "count",
                                                "answer", "spent", "doubt"};
    return known.count(name) != 0;
}

bool is_event(const std::string& name) {
    static const std::set<std::string> known = {"query", "answer", "refused", "ended", "share"};
    return known.count(name) != 0;
}

bool is_valid(const Ledger::Entry& entry) {
    return is_hexadecimal(entry.query, identity_digits) &&
           is_hexadecimal(entry.program, digest_digits) && entry.count >= 1 &&
           entry.count <= max_count &&
           (entry.answer.empty() || is_hexadecimal(entry.answer, digest_digits));
}

/// Characters of a text of UTF-8.
std::size_t characters(const std::string& text) {
    return static_cast<std::size_t>(std::count_if(
        text.begin(), text.end(), [](char byte) { return (byte & 0xc0) != 0x80; }));
}

std::string short_name(const std::string& name) { return name.substr(0, shown_digits); }

}  // namespace

Ledger::Ledger(const std::string& folder) : path_(folder + "/ledger.jsonl") {
    const int flags = O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    file_ = Descriptor(::open(path_.c_str(), flags, 0600));
    if (!file_.open()) {
        fail_opening(path_);
    }
    checked_size(file_, path_, Access::secret);
    while (::flock(file_.number(), LOCK_EX) != 0) {
        if (errno != EINTR) {
            fail_opening(path_);
        }
    }
    read();
}

void Ledger::read() {
    const std::uint64_t size = checked_size(file_, path_, Access::secret);
    if (size > max_size) {
        throw Error("the ledger " + path_ + " is too long",
                    "it has more queries than a key should have", "make new keys");
    }
    std::string text(size, '\0');
    for (std::size_t at = 0; at < size;) {
        const ssize_t done =
            ::pread(file_.number(), text.data() + at, size - at, static_cast<off_t>(at));
        if (done <= 0) {
            throw Error("the ledger " + path_ + " cannot be read");
        }
        at += static_cast<std::size_t>(done);
    }
    // A line without an end was cut off by a kill or a full disk; whoever wrote it was told.
    const std::size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
    if (whole < size && ::ftruncate(file_.number(), static_cast<off_t>(whole)) != 0) {
        fail_opening(path_);
    }
    std::istringstream lines(text.substr(0, whole));
    std::size_t number = 1;
    for (std::string line; std::getline(lines, line); ++number) {
        if (!read_line(line)) {
            throw Error("line " + std::to_string(number) + " of the ledger " + path_ +
                            " is damaged",
                        "", "make new keys: with this ledger old answers could pass for new ones");
        }
    }
}

bool Ledger::read_line(const std::string& line) {
    Entry entry;
    std::string event;
    std::optional<std::string> doubt;
    double spent = 0.0;
    try {
        const Json parsed = parse_json(line);
        const Json::Object& members = parsed.object();
        if (!std::all_of(members.begin(), members.end(),
                         [](const auto& named) { return is_member(named.first); })) {
            return false;
        }
        event = text_of(members, "event");
        const auto count = members.find("count");
        entry = {text_of(members, "query"), text_of(members, "program"),
                 count == members.end() ? 0 : count->second.integer(),
                 text_of(members, "answer")};
        if (const auto found = members.find("spent"); found != members.end()) {
            spent = found->second.real();
        }
        if (members.count("doubt") != 0) {
            doubt = text_of(members, "doubt");
        }
    } catch (const Error&) {
        return false;
    }
    if (!is_event(event) || !is_valid(entry) || !(spent >= 0.0 && spent <= 1.0) ||
        characters(doubt.value_or("")) > most_doubt) {
        return false;
    }
    const auto [found, fresh] = asked_.emplace(entry.query, Asked{entry});
    Asked& known = found->second;
    if (fresh) {
        known.doubt = doubt;
    } else if (known.entry.answer.empty()) {
        known.entry.answer = entry.answer;
    }
    if (event == "refused" && !known.refused) {
        known.refused = true;
        ++refusals_;
    }
    if (event == "ended" && !known.ended) {
        known.ended = true;
        ++ended_;
    }
    if (event == "share") {
        spent_.push_back(spent);
    }
    return known.entry.answer == entry.answer || entry.answer.empty();
}

void Ledger::add(const Entry& query, const std::optional<std::string>& doubt) {
    require_usable();
    if (!is_valid(query) || characters(doubt.value_or("")) > most_doubt) {
        throw Error("a query is none of a ledger");
    }
    if (asked_.emplace(query.query, Asked{query, doubt}).second) {
        append("query", query, doubt ? ", \"doubt\": " + json_string(*doubt) : "");
    }
}

const Ledger::Asked& Ledger::expected(const Entry& answer) const {
    const auto found = asked_.find(answer.query);
    std::string why;
    if (found == asked_.end()) {
        why = "none of the queries that this key encrypted is " + short_name(answer.query);
    } else if (found->second.entry.program != answer.program ||
               found->second.entry.count != answer.count) {
        why = "the query was for " + std::to_string(found->second.entry.count) +
              " inputs of the program " + short_name(found->second.entry.program) +
              ", the answer says " + std::to_string(answer.count) + " of " +
              short_name(answer.program);
    }
    if (!why.empty()) {
        throw Error("this is not the answer to a query of these keys", why,
                    "use the keys and the program that the query was made with");
    }
    const std::string& known = found->second.entry.answer;
    if (!known.empty() && known != answer.answer) {
        throw Error("the query " + short_name(answer.query) +
                        " was answered before, and differently",
                    "a query has one answer; a second one may be made to find out the secret key",
                    "use the first answer, or make a new query");
    }
    if (known.empty()) {  // one that was read before tells nothing new
        require_usable();
    }
    return found->second;
}

void Ledger::check(const Entry& answer) const { expected(answer); }

void Ledger::answer(const Entry& answer) {
    if (expected(answer).entry.answer.empty()) {
        append("answer", answer);
        asked_.at(answer.query).entry.answer = answer.answer;
    }
}

void Ledger::refuse(const Entry& answer) {
    Asked& known = asked_.at(answer.query);
    if (!known.refused) {
        append("refused", answer);
        known.refused = true;
        ++refusals_;
    }
}

void Ledger::end(const Entry& answer) {
    Asked& known = asked_.at(answer.query);
    if (!known.ended) {
        append("ended", answer);
        known.ended = true;
        ++ended_;
    }
}

void Ledger::require_shareable(const Entry& answer, int bits, std::size_t shares) const {
    const Asked& known = expected(answer);
    const std::string why =
        known.refused ? "the answer was refused before"
                      : known.doubt.value_or(
                            "the ledger does not say whether its inputs are like those of calibration");
    if (!why.empty()) {
        throw Error("the answer to the query " + short_name(answer.query) + " is not shared",
                    why + "; the bound on its errors may not hold, and then the noise that is "
                          "added would not hide the secret key",
                    "use its exact numbers for yourself alone, or share a decision, such as the "
                    "class; encrypt such inputs in queries of their own, so that the others can be "
                    "shared");
    }
    const double limit = std::exp2(-bits);
    const double cost = limit / static_cast<double>(shares);
    const double spent = std::accumulate(spent_.begin(), spent_.end(), 0.0);
    if (!(spent + cost <= limit * (1 + rounding))) {
        throw Error("these keys have shared as many answers as they may",
                    std::to_string(spent_.size()) + " answers spent their budget at " +
                        std::to_string(bits) +
                        " bits: a further one may tell something of the secret key",
                    "make new keys, and say with --shares beforehand how many answers they are to "
                    "share");
    }
}

std::size_t Ledger::share(const Entry& answer, int bits, std::size_t shares) {
    require_shareable(answer, bits, shares);
    const double cost = std::exp2(-bits) / static_cast<double>(shares);
    std::ostringstream text;
    text << std::setprecision(17) << cost;
    append("share", answer, ", \"spent\": " + text.str());
    asked_.at(answer.query).entry.answer = answer.answer;
    spent_.push_back(cost);
    return spent_.size();
}

void Ledger::require_usable() const {
    if (refusals_ + ended_ >= most_refusals) {
        const std::string texts =
            ended_ == 0 ? ""
                        : ", and " + std::to_string(ended_) + " ended a text where the server saw it";
        throw Error("these keys are used up",
                    std::to_string(refusals_) +
                        " answers to their queries were refused after they were decrypted" + texts +
                        "; each may tell a server that sends false answers something of the "
                        "secret key",
                    "make new keys with atlasc keygen or client keygen, and give the server its part "
                    "of them. Find out first why answers were refused: inputs unlike those of "
                    "calibration (atlasc check-input tells), or a server that computes something "
                    "else. Ask for a fixed number of tokens of a text (atlasc ask --tokens)");
    }
}

void Ledger::append(const std::string& event, const Entry& entry, const std::string& more) {
    const std::string answer =
        entry.answer.empty() ? "" : ", \"answer\": " + json_string(entry.answer);
    const std::string line = "{\"event\": " + json_string(event) + ", \"query\": " +
                             json_string(entry.query) + ", \"program\": " +
                             json_string(entry.program) + ", \"count\": " +
                             std::to_string(entry.count) + answer + more + "}\n";
    const std::uint64_t before = checked_size(file_, path_, Access::secret);
    try {
        write_all(file_, path_, line.data(), line.size());
        if (system::flush(file_.number()) != 0) {
            fail_writing(path_);
        }
    } catch (const Error&) {  // a whole line or none
        if (::ftruncate(file_.number(), static_cast<off_t>(before)) != 0) {
            fail_writing(path_);
        }
        throw;
    }
}

}  // namespace atlasc
