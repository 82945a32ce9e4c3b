#include "atlasc/ledger.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <sstream>

#include "atlasc/error.hpp"
#include "atlasc/json.hpp"

namespace atlasc {
namespace {

constexpr std::size_t identity_digits = 32;
constexpr std::size_t digest_digits = 64;
constexpr std::uint64_t max_size = std::uint64_t{1} << 28;  // half a million queries
constexpr std::uint64_t max_count = std::uint64_t{1} << 20;
constexpr std::size_t max_doubt = 400;  // characters, of up to 4 bytes

constexpr const char* other_answer =
    "send a query of its own for each answer; decrypt answers where their query was encrypted";

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
    static const std::set<std::string> known = {"query", "answer", "refused", "share"};
    return known.count(name) != 0;
}

}  // namespace

Ledger::Ledger(const std::string& key) : path_(folder_of(key) + "/ledger.jsonl") {
    const int flags = O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    file_ = Descriptor(::open(path_.c_str(), flags, 0600));
    if (!file_.open()) {
        fail_writing(path_);
    }
    checked_size(file_, path_, Access::secret);
    while (::flock(file_.number(), LOCK_EX) != 0) {
        if (errno != EINTR) {
            fail_writing(path_);
        }
    }
    read();
}

void Ledger::read() {
    const std::uint64_t size = checked_size(file_, path_, Access::secret);
    if (size > max_size) {
        throw Error("file " + path_ + " is too long", "it has more queries than a key should have",
                    "make new keys");
    }
    std::string text(size, '\0');
    for (std::size_t at = 0; at < size;) {
        const ssize_t done =
            ::pread(file_.number(), text.data() + at, size - at, static_cast<off_t>(at));
        if (done <= 0) {
            throw Error("file " + path_ + " cannot be read");
        }
        at += static_cast<std::size_t>(done);
    }
    // A line without an end was cut off by a kill or a full disk; whoever wrote it was told.
    const std::size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
    if (whole < size && ::ftruncate(file_.number(), static_cast<off_t>(whole)) != 0) {
        fail_writing(path_);
    }
    std::istringstream lines(text.substr(0, whole));
    for (std::string line; std::getline(lines, line);) {
        if (!read_line(line)) {
            throw Error("file " + path_ + " is damaged", "a line is none of a ledger",
                        "make new keys: with this ledger old answers could pass for new ones");
        }
    }
}

bool Ledger::read_line(const std::string& line) {
    Entry entry;
    std::string event;
    try {
        const Json parsed = parse_json(line);
        const Json::Object& members = parsed.object();
        for (const auto& named : members) {
            if (!is_member(named.first)) {
                return false;
            }
        }
        event = text_of(members, "event");
        const auto count = members.find("count");
        entry = {text_of(members, "query"), text_of(members, "program"),
                 count == members.end() ? 0 : count->second.integer(),
                 text_of(members, "answer")};
        const auto spent = members.find("spent");
        if (spent != members.end() && !(spent->second.real() <= 1.0)) {
            return false;
        }
        if (text_of(members, "doubt").size() > 4 * max_doubt) {
            return false;
        }
    } catch (const Error&) {
        return false;
    }
    if (!is_event(event) || !is_hexadecimal(entry.query, identity_digits) ||
        !is_hexadecimal(entry.program, digest_digits) || entry.count < 1 ||
        entry.count > max_count ||
        !(entry.answer.empty() || is_hexadecimal(entry.answer, digest_digits))) {
        return false;
    }
    Asked& known = asked_.emplace(entry.query, Asked{entry}).first->second;
    if (known.entry.answer.empty()) {
        known.entry.answer = entry.answer;
    }
    if (event == "refused" && !known.refused) {
        known.refused = true;
        ++refusals_;
    }
    return known.entry.answer == entry.answer || entry.answer.empty();
}

void Ledger::add(const Entry& query, const std::string& doubt) {
    require_usable();
    asked_.emplace(query.query, Asked{query});
    append("query", query, ", \"doubt\": " + json_string(doubt));
}

void Ledger::answer(const Entry& answer) {
    const auto found = asked_.find(answer.query);
    if (found == asked_.end()) {
        throw Error("the answer belongs to no query of this key", "", other_answer);
    }
    Entry& known = found->second.entry;
    if (known.program != answer.program) {
        throw Error("the answer is not that of its query", "the query was for another program",
                    other_answer);
    }
    if (known.count != answer.count) {
        throw Error("the answer is not that of its query",
                    "it says " + std::to_string(answer.count) + " inputs, the query had " +
                        std::to_string(known.count),
                    "ask the server again");
    }
    if (known.answer.empty()) {
        require_usable();
        append("answer", answer, ", \"answer\": " + json_string(answer.answer));
        known.answer = answer.answer;
    } else if (known.answer != answer.answer) {
        throw Error("the query was answered already, and otherwise",
                    "each query has one answer", other_answer);
    }
}

void Ledger::refuse(const Entry& answer) {
    Asked& known = asked_.at(answer.query);
    if (!known.refused) {
        append("refused", answer, ", \"answer\": " + json_string(answer.answer));
        known.refused = true;
        ++refusals_;
    }
}

void Ledger::require_usable() const {
    if (refusals_ >= most_refusals) {
        throw Error("these keys are used up",
                    std::to_string(refusals_) +
                        " answers to their queries were refused after they were decrypted; each "
                        "refusal may tell a server that sends false answers something of the "
                        "secret key",
                    "make new keys, and give the server its part of them. Find out first why "
                    "answers were refused: inputs unlike those of calibration (atlasc check-input "
                    "tells), or a server that computes something else");
    }
}

void Ledger::append(const std::string& event, const Entry& entry, const std::string& more) {
    const std::string line = "{\"event\": " + json_string(event) + ", \"query\": " +
                             json_string(entry.query) + ", \"program\": " +
                             json_string(entry.program) + ", \"count\": " +
                             std::to_string(entry.count) + more + "}\n";
    write_all(file_, path_, line.data(), line.size());
    if (::fsync(file_.number()) != 0) {
        fail_writing(path_);
    }
}

}  // namespace atlasc
