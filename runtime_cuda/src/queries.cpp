#include "atlasc/queries.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

#include "atlasc/error.hpp"
#include "atlasc/numbers.hpp"

namespace atlasc {
namespace {

constexpr std::size_t identity_digits = 32;
constexpr std::size_t digest_digits = 64;
constexpr std::uint64_t max_size = std::uint64_t{1} << 26;  // a million queries

constexpr const char* other_answer =
    "send a query of its own for each answer; decrypt answers where their query was encrypted";

}  // namespace

Queries::Queries(const std::string& key) : path_(folder_of(key) + "/queries") {
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

void Queries::read() {
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
            throw Error("file " + path_ + " is damaged", "a line is no query and no answer",
                        "restore it from a copy, or make new keys");
        }
    }
}

bool Queries::read_line(const std::string& line) {
    const std::size_t first = line.find(' ');
    const std::size_t second = first == std::string::npos ? first : line.find(' ', first + 1);
    if (second == std::string::npos) {
        return false;
    }
    const std::string kind = line.substr(0, first);
    const std::string query = line.substr(first + 1, second - first - 1);
    const std::string fact = line.substr(second + 1);
    if (!is_hexadecimal(query, identity_digits)) {
        return false;
    }
    const auto known = queries_.find(query);
    if (kind == "query") {
        const auto count = plain_number(fact);
        return count && *count > 0 && known == queries_.end() &&
               queries_.emplace(query, Query{*count}).second;
    }
    if (kind != "answered" || known == queries_.end() || !known->second.answer.empty() ||
        !is_hexadecimal(fact, digest_digits)) {
        return false;
    }
    known->second.answer = fact;
    return true;
}

void Queries::add(const std::string& query, std::size_t count) {
    queries_[query] = {count};
    append("query " + query + " " + std::to_string(count) + "\n");
}

void Queries::answer(const std::string& query, std::size_t count, const std::string& digest) {
    const auto found = queries_.find(query);
    if (found == queries_.end()) {
        throw Error("the answer belongs to no query of this key", "", other_answer);
    }
    if (found->second.count != count) {
        throw Error("the answer is not that of its query",
                    "it says " + std::to_string(count) + " inputs, the query had " +
                        std::to_string(found->second.count),
                    "ask the server again");
    }
    if (found->second.answer.empty()) {
        append("answered " + query + " " + digest + "\n");
        found->second.answer = digest;
    } else if (found->second.answer != digest) {
        throw Error("the query was answered already, and otherwise",
                    "each query has one answer", other_answer);
    }
}

void Queries::append(const std::string& line) {
    write_all(file_, path_, line.data(), line.size());
    if (::fsync(file_.number()) != 0) {
        fail_writing(path_);
    }
}

}  // namespace atlasc
