#include "atlasc/base/drafts.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "atlasc/base/error.hpp"
#include "src/base/system.hpp"

namespace atlasc {
namespace {

namespace fs = std::filesystem;

const std::string head = ".atlasc-";
const std::string tail = ".draft";

constexpr int reading = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;

bool is_draft(const std::string& name) {
    return name.size() == head.size() + 32 + tail.size() &&
           name.compare(0, head.size(), head) == 0 &&
           is_hexadecimal(name.substr(head.size(), 32), 32) &&
           name.compare(name.size() - tail.size(), tail.size(), tail) == 0;
}

/// Removes the user's drafts that nobody has locked.
void remove_stale(const std::string& folder) {
    const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), ::closedir);
    for (const dirent* entry = nullptr;
         entries != nullptr && (entry = ::readdir(entries.get())) != nullptr;) {
        if (!is_draft(entry->d_name)) {
            continue;
        }
        const std::string place = folder + "/" + entry->d_name;
        const Descriptor file(::open(place.c_str(), reading));
        struct stat facts {};
        if (file.open() && ::fstat(file.number(), &facts) == 0 && facts.st_uid == ::geteuid() &&
            ::flock(file.number(), LOCK_EX | LOCK_NB) == 0) {
            std::error_code ignored;
            fs::remove_all(place, ignored);
        }
    }
}

/// Whether a path still leads to an open file.
bool leads_to(const std::string& path, const Descriptor& file) {
    struct stat here {};
    struct stat open {};
    return ::lstat(path.c_str(), &here) == 0 && ::fstat(file.number(), &open) == 0 &&
           here.st_ino == open.st_ino && here.st_dev == open.st_dev;
}

void sync(const Descriptor& file, const std::string& path) {
    // Some file systems have nothing to sync in a folder.
    if (!file.open() || (system::flush(file.number()) != 0 && errno != EINVAL)) {
        fail_writing(path);
    }
}

/// 0 where the output has its name now; it is never replaced.
int renamed(const std::string& place, const std::string& output, Draft::Kind kind) {
    const system::Renamed done = system::rename_new(place.c_str(), output.c_str());
    if (done != system::Renamed::unsupported) {
        return done == system::Renamed::done ? 0 : -1;
    }
    // A file system without this: a link never replaces, a folder replaces an empty one at most.
    if (kind == Draft::Kind::folder) {
        return ::rename(place.c_str(), output.c_str());
    }
    return ::link(place.c_str(), output.c_str()) == 0 ? ::unlink(place.c_str()) : -1;
}

}  // namespace

Draft::Draft(std::string output, Kind kind, Access access)
    : output_(std::move(output)), kind_(kind), access_(access) {
    require_new(output_);
    remove_stale(folder_of(output_));
    do {  // another process may have removed it before it was locked
        make();
    } while (!leads_to(place_, lock_));
}

void Draft::make() {
    place_ = folder_of(output_) + "/" + head + random_identity() + tail;
    if (kind_ == Kind::folder) {
        if (::mkdir(place_.c_str(), S_IRWXU) != 0) {
            throw Error("cannot make the folder " + output_,
                        std::generic_category().message(errno));
        }
        lock_ = Descriptor(::open(place_.c_str(), reading | O_DIRECTORY));
    } else {
        const mode_t mode = access_ == Access::secret ? 0600 : 0666;
        lock_ = Descriptor(::open(place_.c_str(),
                                  O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    }
    if (!lock_.open() || ::flock(lock_.number(), LOCK_EX) != 0) {
        fail_writing(output_);
    }
}

Draft::~Draft() {
    if (!place_.empty()) {
        std::error_code ignored;
        fs::remove_all(place_, ignored);
    }
}

void Draft::write(const void* data, std::size_t size) { write_all(lock_, output_, data, size); }

void Draft::publish() {
    sync(lock_, output_);
    if (renamed(place_, output_, kind_) != 0) {
        if (errno == EEXIST || errno == ENOTEMPTY) {
            require_new(output_);
        }
        fail_writing(output_);
    }
    place_.clear();
    const std::string folder = folder_of(output_);
    sync(Descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)), output_);
    if (::close(lock_.release()) != 0) {
        fail_writing(output_);
    }
}

void require_new(const std::string& path) {
    struct stat facts {};
    if (::lstat(path.c_str(), &facts) == 0) {
        throw Error("the output " + path + " exists already", "",
                    "choose another, or remove it first; nothing is overwritten");
    }
}

void write_new(const std::string& path, const void* data, std::size_t size, Access access) {
    Draft draft(path, Draft::Kind::file, access);
    draft.write(data, size);
    draft.publish();
}

}  // namespace atlasc
