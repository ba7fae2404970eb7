//! Checks of the path between the device and memory: PCI Express and the IOMMU.

use crate::{
    Finding, HostCheck, Judged, Scene,
    check::{FAST, FixClass, LATENCY, Severity},
    host::chosen,
};

/// The PCI Express capability (PCI Local Bus specification 3.0, appendix H).
const EXPRESS: u8 = 0x10;
/// The extended capability for access control (PCI Express base specification, ACS).
const ACCESS_CONTROL: u16 = 0x0d;

/// The checks of this family.
pub(super) const CHECKS: &[HostCheck] = &[
    HostCheck {
        id: "PCI01",
        name: "speed and width of the slot",
        severity: Severity::Warn,
        class: FixClass::Nobody,
        profiles: FAST,
        why: "A card in a slot with fewer lanes, or of an older generation, never reaches its \
              rate. Some devices slow the link down while they are idle: look again under load.",
        source: "device/{max,current}_link_{speed,width}; kernel sysfs-bus-pci",
        judge: slot,
    },
    HostCheck {
        id: "PCI02",
        name: "sizes of requests and payloads",
        severity: Severity::Info,
        class: FixClass::Boot,
        profiles: FAST,
        why: "Each packet on the bus has a header of 24 octets; small payloads and small read \
              requests cost a fast device its rate.",
        source: "config space: Device Control; PCI Express base specification 7.5.3.4",
        judge: sizes,
    },
    HostCheck {
        id: "PCI03",
        name: "relaxed ordering",
        severity: Severity::Info,
        class: FixClass::Operator,
        profiles: FAST,
        why: "A write that may pass others does not wait for the memory of another node. On some \
              processors that is a factor of four.",
        source: "config space: Device Control bit 4; ibv_reg_mr(3): IBV_ACCESS_RELAXED_ORDERING",
        judge: ordering,
    },
    HostCheck {
        id: "PCI04",
        name: "access control between devices",
        severity: Severity::Info,
        class: FixClass::Boot,
        profiles: FAST,
        why: "Bridges with access control send what one device writes to another through the \
              root: a detour for transfers between a GPU and the network. Stag makes none \
              itself; a client of it may. It also isolates virtual machines: switch it off only \
              where there are none.",
        source: "config space of bridges: ACS Control; NVIDIA GPUDirect Storage guide",
        judge: access_control,
    },
    HostCheck {
        id: "PCI05",
        name: "IOMMU",
        severity: Severity::Warn,
        class: FixClass::Boot,
        profiles: FAST,
        why: "With translation each access of the device needs an entry of a cache that is too \
              small for large pools, and each mapping costs the kernel a flush. Pass-through \
              keeps the protection of virtual machines and translates nothing for the host.",
        source: "device/iommu_group/type, /sys/class/iommu; kernel-parameters.txt: \
                 iommu.passthrough",
        judge: iommu,
    },
    HostCheck {
        id: "PCI06",
        name: "power management of the bus",
        severity: Severity::Info,
        class: FixClass::Runtime,
        profiles: LATENCY,
        why: "A link that sleeps needs microseconds to wake up, at the first message.",
        source: "/sys/module/pcie_aspm/parameters/policy, device/power/control; kernel \
                 sysfs-bus-pci",
        judge: power,
    },
];

fn slot(scene: &Scene) -> Judged {
    let mut shown = String::new();
    for at in scene.pci_folders()? {
        let read = |name: &str| scene.host.text(&format!("{at}/{name}"));
        let (Ok(speed), Ok(fastest)) = (read("current_link_speed"), read("max_link_speed")) else {
            continue;
        };
        let (width, widest) = (read("current_link_width")?, read("max_link_width")?);
        shown = format!("{speed} x{width}");
        if speed != fastest || width != widest {
            let wanted = format!("{fastest} x{widest}");
            return Ok(Finding::judge(false, shown, wanted)
                .fix("another slot, or the speed of the slot in the firmware"));
        }
    }
    match shown.is_empty() {
        true => Err(Finding::not_applicable("the device shows no link of PCI Express")),
        false => Ok(Finding::judge(true, shown, "the most that the device can")),
    }
}

/// A number of two octets in config space, whose order is little endian (PCI).
fn word(config: &[u8], at: usize) -> Option<u16> {
    let octets = config.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(octets.try_into().ok()?))
}

/// Config space of the device at `at`, and the place of its PCI Express capability.
fn express(scene: &Scene, at: &str) -> Result<(Vec<u8>, usize), Finding> {
    let config = scene.host.octets(&format!("{at}/config"))?;
    if config.len() <= 64 {
        return Err(Finding::unknown("the config space beyond 64 octets needs root"));
    }
    let mut place = usize::from(*config.get(0x34).unwrap_or(&0) & 0xfc);
    // A list in 256 octets has 48 entries at most, even if it is a circle.
    for _ in 0..48 {
        match (config.get(place), config.get(place + 1)) {
            (Some(&EXPRESS), _) if place >= 64 => return Ok((config, place)),
            (Some(_), Some(&next)) if place >= 64 => place = usize::from(next & 0xfc),
            _ => break,
        }
    }
    Err(Finding::not_applicable("the device is not on PCI Express"))
}

/// Device Control of the first device, its folder, and the place of the register.
fn device_control(scene: &Scene) -> Result<(u16, String, usize), Finding> {
    let at = scene.pci_folders()?.into_iter().next().unwrap_or_default();
    let (config, place) = express(scene, &at)?;
    let control = word(&config, place + 8);
    let control = control.ok_or_else(|| Finding::not_applicable("config space is cut short"))?;
    Ok((control, at, place + 8))
}

fn sizes(scene: &Scene) -> Judged {
    let (control, at, place) = device_control(scene)?;
    let payload = 128_u32 << (control >> 5 & 7);
    let request = 128_u32 << (control >> 12 & 7);
    let address = scene.host.link(&at).unwrap_or_else(|| "DEVICE".into());
    let new = control & 0x8fff | 5 << 12;
    Ok(Finding::judge(
        payload >= 256 && request >= 4096,
        format!("payload {payload}, request {request}"),
        "256 and 4096 octets or more",
    )
    .fix(format!("setpci -s {address} {place:x}.w={new:04x} (requests; payloads: the firmware)")))
}

fn ordering(scene: &Scene) -> Judged {
    let (control, at, place) = device_control(scene)?;
    let is_on = control >> 4 & 1 == 1;
    let address = scene.host.link(&at).unwrap_or_else(|| "DEVICE".into());
    Ok(Finding::judge(is_on, if is_on { "on" } else { "off" }, "on")
        .fix(format!("setpci -s {address} {place:x}.w={:04x}", control | 1 << 4)))
}

/// Control word of the access control capability, if the device has one.
fn access_control_of(config: &[u8]) -> Option<u16> {
    let mut place = 256_usize;
    // A list in 4096 octets has 480 entries at most, even if it is a circle.
    for _ in 0..480 {
        if word(config, place)? == ACCESS_CONTROL {
            return word(config, place + 6);
        }
        place = usize::from(word(config, place + 2)? >> 4);
        if place < 256 {
            return None;
        }
    }
    None
}

fn access_control(scene: &Scene) -> Judged {
    let bus = "/sys/bus/pci/devices";
    let devices = scene.host.names(bus);
    let class =
        |device: &str| scene.host.text(&format!("{bus}/{device}/class")).unwrap_or_default();
    // Display controllers, 3D: accelerators.
    if !devices.iter().any(|device| class(device).starts_with("0x0302")) {
        return Err(Finding::not_applicable("no accelerator that could transfer by itself"));
    }
    let (mut bridges, mut redirecting) = (0, 0);
    for device in devices.iter().filter(|device| class(device).starts_with("0x0604")) {
        let config = scene.host.octets(&format!("{bus}/{device}/config"))?;
        if config.len() <= 256 {
            return Err(Finding::unknown("config space beyond 256 octets needs root"));
        }
        bridges += 1;
        // Request redirect, completion redirect, upstream forwarding.
        redirecting += usize::from(access_control_of(&config).is_some_and(|c| c & 0b1_1100 != 0));
    }
    let measured = format!("{redirecting} of {bridges} bridges redirect");
    Ok(Finding::judge(redirecting == 0, measured, "none, where no virtual machines are")
        .fix("setpci -s BRIDGE ECAP_ACS+6.w=0000"))
}

fn iommu(scene: &Scene) -> Judged {
    let wanted = "off, or identity (pass-through)";
    if !scene.host.exists("/sys/class") {
        return Err(Finding::not_applicable("no /sys/class here"));
    }
    if scene.host.names("/sys/class/iommu").is_empty() {
        return Ok(Finding::judge(true, "off", wanted));
    }
    let mut shown = String::new();
    for at in scene.pci_folders()? {
        let kind = scene.host.text(&format!("{at}/iommu_group/type"))?;
        let is_met = kind == "identity";
        shown = kind;
        if !is_met {
            break;
        }
    }
    Ok(Finding::judge(shown == "identity", shown.clone(), wanted)
        .fix("kernel command line: iommu=pt"))
}

fn power(scene: &Scene) -> Judged {
    let path = "/sys/module/pcie_aspm/parameters/policy";
    let folders = scene.pci_folders()?;
    let text = scene.host.text(path)?;
    let policy = chosen(&text).unwrap_or_default().to_owned();
    let controls = folders.iter().map(|at| format!("{at}/power/control"));
    let auto: Vec<_> =
        controls.filter(|at| scene.host.text(at).is_ok_and(|value| value == "auto")).collect();
    let is_fast = policy == "performance";
    let measured = format!("{policy}, {} devices may sleep", auto.len());
    let mut finding =
        Finding::judge(is_fast && auto.is_empty(), measured, "performance, none may sleep");
    if !is_fast {
        finding = finding.set(path, "performance");
    }
    Ok(finding.set_all(auto, "on"))
}
