/* Libraries from memory: loaded once each, as long as somebody has one. */
#pragma once

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace tinyai {

class Library {
 public:
  void* handle = nullptr;

  /* The library of a key, whose content `read` writes to a file descriptor where it is not loaded
     yet; NULL, and why in `wrong`, where that fails. */
  template <typename Write>
  static Library* open(const std::string& key, const Write& write, std::string& wrong) {
    const std::lock_guard<std::mutex> lock(mutex());
    Library*& known = all()[key];
    if (known == nullptr) {
      auto* made = new Library(key);
      wrong = made->load(write);
      if (!wrong.empty()) {
        delete made;
        all().erase(key);
        return nullptr;
      }
      known = made;
    }
    ++known->users_;
    return known;
  }

  /* Says that one user less needs it. */
  void release() {
    const std::lock_guard<std::mutex> lock(mutex());
    if (--users_ == 0) {
      all().erase(key_);
      delete this;
    }
  }

 private:
  explicit Library(const std::string& key) : key_(key) {}

  ~Library() {
    if (handle != nullptr) {
      dlclose(handle);
    }
    /* Not before: where a number is used again, the C library takes the new file for this one. */
    if (file_ >= 0) {
      close(file_);
    }
  }

  template <typename Write>
  std::string load(const Write& write) {
    const char* memory = getenv("TINYAI_MEMFD");
    std::string wrong = "it is barred by TINYAI_MEMFD=0";
    if (memory == nullptr || std::string(memory) != "0") {
      wrong = from_memory(write);
    }
    if (handle == nullptr) {
      const std::string also = from_temporary(write);
      wrong = also.empty() ? "" : "from memory: " + wrong + "; from a temporary file: " + also;
    }
    return wrong;
  }

  template <typename Write>
  std::string from_memory(const Write& write) {
#ifdef SYS_memfd_create
    constexpr unsigned kCloseOnExec = 1, kExecutable = 16;
    file_ = static_cast<int>(syscall(SYS_memfd_create, "tinyai", kCloseOnExec | kExecutable));
    if (file_ < 0) { /* a Linux that does not know the second flag yet */
      file_ = static_cast<int>(syscall(SYS_memfd_create, "tinyai", kCloseOnExec));
    }
    if (file_ < 0) {
      return "memfd_create is refused";
    }
    std::string wrong = write(file_);
    if (wrong.empty()) {
      wrong = link("/proc/self/fd/" + std::to_string(file_));
    }
    if (!wrong.empty()) {
      close(file_);
      file_ = -1;
    }
    return wrong;
#else
    (void)write;
    return "this system has no memfd_create";
#endif
  }

  /* A file whose name this process never uses again. */
  template <typename Write>
  std::string from_temporary(const Write& write) {
    static int count = 0;
    const char* folder = getenv("TMPDIR");
    std::string name = folder != nullptr && *folder != 0 ? folder : "/tmp";
    name += "/tinyai-" + std::to_string(getpid()) + "-" + std::to_string(count++) + "-XXXXXX";
    const int file = mkostemp(&name[0], O_CLOEXEC);
    if (file < 0) {
      return name + " cannot be made";
    }
    std::string wrong = write(file);
    if (wrong.empty()) {
      wrong = link(name);
    }
    close(file);
    unlink(name.c_str());
    return wrong;
  }

  std::string link(const std::string& name) {
    handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    const char* said = handle == nullptr ? dlerror() : nullptr;
    return handle != nullptr ? "" : said != nullptr ? said : "dlopen fails";
  }

  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }

  /* Never destroyed: methods may be, after static objects. */
  static std::map<std::string, Library*>& all() {
    static auto* const libraries = new std::map<std::string, Library*>();
    return *libraries;
  }

  std::string key_;
  int users_ = 0;
  int file_ = -1;
};

/* Writes bytes to a file descriptor; returns what is wrong, if anything. */
inline std::string write_all(int file, const void* data, size_t bytes) {
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(file, next, bytes);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      return "it cannot be written";
    }
    next += written;
    bytes -= static_cast<size_t>(written);
  }
  return "";
}

} // namespace tinyai
